package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
)

// Pool is the state of one class of requests, under the name that it has in the runtime info.
type Pool struct {
	Name              string // send, pull, litePull, query, ack
	Waiting, Capacity int
	HeadWait          time.Duration
}

// Totals are the messages put and got by clients, now and at the last two midnights.
type Totals struct{ Put, Got, PutToday, GotToday, PutYesterday, GotYesterday int64 }

// Level is the state of one delay level.
type Level struct {
	Level     int
	Done, Max int64
}

// Runtime tells how the broker is.
type Runtime struct {
	Store  func() store.Stats
	Pools  func() []Pool
	Totals func() Totals
	Levels func() []Level
	Start  func() int64 // startAcceptSendRequestTimeStamp
}

// Info is request 28.
func (h *Runtime) Info(_ *remoting.Request, resp *remoting.Response) error {
	st := h.Store()
	t := map[string]string{}
	put1 := func(key string, v int64) { t[key] = strconv.FormatInt(v, 10) }
	putCounters(t, &st)
	putDisk(t, &st)
	for _, p := range h.Pools() {
		put1(p.Name+"ThreadPoolQueueSize", int64(p.Waiting))
		put1(p.Name+"ThreadPoolQueueCapacity", int64(p.Capacity))
		put1(p.Name+"ThreadPoolQueueHeadWaitTimeMills", p.HeadWait.Milliseconds())
	}
	for _, l := range h.Levels() {
		t["scheduleMessageOffset_"+strconv.Itoa(l.Level)] = fmt.Sprintf("%d,%d", l.Done, l.Max)
	}
	n := h.Totals()
	put1("msgPutTotalTodayNow", n.Put)
	put1("msgGetTotalTodayNow", n.Got)
	put1("msgPutTotalTodayMorning", n.PutToday)
	put1("msgGetTotalTodayMorning", n.GotToday)
	put1("msgPutTotalYesterdayMorning", n.PutYesterday)
	put1("msgGetTotalYesterdayMorning", n.GotYesterday)
	t["brokerActive"] = strconv.FormatBool(st.Err == nil)
	t["brokerVersionDesc"] = protocol.VersionName(protocol.Version)
	put1("brokerVersion", int64(protocol.Version))
	put1("startAcceptSendRequestTimeStamp", h.Start())
	t["timerReadBehind"], t["timerOffsetBehind"], t["timerCongestNum"] = "0", "0", "0"
	t["timerEnqueueTps"], t["timerDequeueTps"] = "0.0", "0.0"
	put1("remainTransientStoreBufferNumbs", 1<<31-1)
	t["EndTransactionQueueSize"], t["EndTransactionThreadPoolQueueCapacity"] = "0", "0"
	return put(resp, map[string]any{"table": t})
}

func putCounters(t map[string]string, st *store.Stats) {
	put1 := func(key string, v int64) { t[key] = strconv.FormatInt(v, 10) }
	put1("bootTimestamp", st.BootTime)
	up := time.Since(time.UnixMilli(st.BootTime))
	t["runtime"] = fmt.Sprintf("[ %d days, %d hours, %d minutes, %d seconds ]", int(up.Hours())/24, int(up.Hours())%24, int(up.Minutes())%60, int(up.Seconds())%60)
	put1("putMessageEntireTimeMax", st.PutTimeMax)
	put1("getMessageEntireTimeMax", st.GetTimeMax)
	puts := max(st.Puts, 1)
	put1("putMessageTimesTotal", puts)
	put1("putMessageFailedTimes", st.PutFailed)
	put1("putMessageSizeTotal", st.PutBytes)
	t["putMessageAverageSize"] = double(float64(st.PutBytes) / float64(puts))
	t["putMessageDistributeTime"] = distribution(st)
	put1("dispatchMaxBuffer", st.DispatchMaxBuffer)
	t["putTps"], t["getFoundTps"], t["getMissTps"] = rate(st.PutRate), rate(st.FoundRate), rate(st.MissRate)
	t["getTransferredTps"] = rate(st.TransferOut)
	t["getTransferedTps"] = t["getTransferredTps"]
	var total []string
	for i := range st.FoundRate.PerSecond {
		total = append(total, double(st.FoundRate.PerSecond[i]+st.MissRate.PerSecond[i]))
	}
	t["getTotalTps"] = strings.Join(total, " ")
	t["putLatency99"], t["putLatency999"] = fmt.Sprintf("%.2f", st.PutLatency99), fmt.Sprintf("%.2f", st.PutLatency999)
}

func putDisk(t map[string]string, st *store.Stats) {
	put1 := func(key string, v int64) { t[key] = strconv.FormatInt(v, 10) }
	lowest, total, free := -1.0, int64(0), int64(0)
	for _, p := range st.Log {
		t["commitLogDiskRatio_"+p.Path] = double(p.Ratio)
		if lowest < 0 || p.Ratio < lowest {
			lowest = p.Ratio
		}
		total += p.Total
		free += p.Avail
	}
	t["commitLogDiskRatio"] = double(lowest)
	t["consumeQueueDiskRatio"] = double(st.Queue.Ratio)
	t["commitLogDirCapacity"] = fmt.Sprintf("Total : %s, Free : %s.", human(total), human(free))
	put1("commitLogMinOffset", st.LogMin)
	put1("commitLogMaxOffset", st.LogMax)
	put1("dispatchBehindBytes", st.DispatchBehind)
	put1("pageCacheLockTimeMills", st.AppendLockHeld)
	put1("earliestMessageTimeStamp", st.EarliestStoreTime)
	t["remainHowManyDataToFlush"] = human(st.ToFlush)
}

// double is a number as Java prints it: with a fraction.
func double(f float64) string {
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// rate is three averages; what is not known yet is left out.
func rate(r store.Rate) string {
	var parts [3]string
	for i := range parts {
		if r.Known[i] {
			parts[i] = double(r.PerSecond[i])
		}
	}
	return strings.Join(parts[:], " ")
}

// human is a size with one digit behind the point in units of 1024.
func human(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, unit := float64(n)/1024, 0
	for f >= 1024 && unit < 5 {
		f, unit = f/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTPE"[unit])
}

var putClassNames = [store.PutClasses]string{"<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s",
	"2~3s", "3~4s", "4~5s", "5~10s", "10s~"}

func distribution(st *store.Stats) string {
	if !st.PutDistributionKnown {
		return "null"
	}
	var b strings.Builder
	for i, name := range putClassNames {
		fmt.Fprintf(&b, "[%s]:%d ", name, st.PutDistribution[i])
	}
	return b.String()
}
