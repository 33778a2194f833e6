package message

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// golden calls fn with each line of a captured file.
func golden[T any](t testing.TB, name string, fn func(line int, c T)) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 16<<20)
	n := 0
	for sc.Scan() {
		n++
		var c T
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatalf("%s:%d: %v", name, n, err)
		}
		fn(n, c)
	}
	if err := sc.Err(); err != nil || n == 0 {
		t.Fatalf("%s: %d cases, %v", name, n, err)
	}
}

type messageCase struct {
	Hex, Topic                             string
	QueueID, Flag, SysFlag, ReconsumeTimes int32
	QueueOffset, PhysicalOffset            int64
	BornTimestamp, StoreTimestamp          int64
	BornHost, StoreHost, BodyHex, MsgID    string
	PreparedTransactionOffset              int64
	BodyCRC                                uint32
	Properties                             map[string]string
	StoreSize                              int32
}

func TestGoldenRecords(t *testing.T) {
	seen := 0
	golden(t, "messages.jsonl", func(line int, c messageCase) {
		if c.Hex == "" || c.Topic == "" || c.StoreSize == 0 {
			return
		}
		seen++
		raw, err := hex.DecodeString(c.Hex)
		if err != nil {
			t.Fatal(err)
		}
		var r Record
		if err := Parse(append(raw, 1, 2, 3), &r); err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		body, _ := hex.DecodeString(c.BodyHex)
		got := messageCase{Hex: c.Hex, Topic: string(r.Topic), QueueID: r.QueueID, Flag: r.Flag, SysFlag: r.SysFlag, ReconsumeTimes: r.ReconsumeTimes,
			QueueOffset: int64(r.QueueOffset), PhysicalOffset: int64(r.LogOffset), BornTimestamp: r.BornTime, StoreTimestamp: r.StoreTime,
			BornHost: c.BornHost, StoreHost: c.StoreHost, BodyHex: c.BodyHex, MsgID: string(AppendID(nil, r.StoreHost, r.LogOffset)),
			PreparedTransactionOffset: int64(r.PreparedOffset), BodyCRC: r.BodyCRC, Properties: DecodeProperties(r.Properties), StoreSize: r.Size}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(c)
		if !bytes.Equal(a, b) {
			t.Errorf("line %d:\n got %s\nwant %s", line, a, b)
		}
		if !bytes.Equal(r.Body, body) || !r.BodyValid() {
			t.Errorf("line %d: body", line)
		}
		m := Message{Topic: r.Topic, QueueID: r.QueueID, Flag: r.Flag, SysFlag: r.SysFlag, BornTime: r.BornTime, BornHost: r.BornHost, StoreHost: r.StoreHost,
			ReconsumeTimes: r.ReconsumeTimes, PreparedOffset: r.PreparedOffset, Body: r.Body, Properties: r.Properties}
		again, err := AppendRecord(nil, &m)
		if err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		if len(again) != Size(&m) {
			t.Errorf("line %d: Size says %d, the record has %d bytes", line, Size(&m), len(again))
		}
		Patch(again, r.QueueOffset, r.LogOffset, r.StoreTime)
		if !bytes.Equal(again, raw) {
			t.Errorf("line %d: encoding again gives\n%x\nwant\n%x", line, again, raw)
		}
		if StoreTimeAt(again) != r.StoreTime {
			t.Errorf("line %d: store time %d", line, StoreTimeAt(again))
		}
	})
	if seen < 10 {
		t.Fatalf("only %d records", seen)
	}
}

// TestBatchMembersOfJava checks that of names that occur twice in a record stored by RocketMQ the last wins.
func TestBatchMembersOfJava(t *testing.T) {
	golden(t, "batch_stored.jsonl", func(line int, c struct{ PropertiesText, RecordHex string }) {
		raw, _ := hex.DecodeString(c.RecordHex)
		var r Record
		if err := Parse(raw, &r); err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		if string(r.Properties) != c.PropertiesText {
			t.Errorf("line %d: properties %q", line, r.Properties)
		}
		last := c.PropertiesText[strings.LastIndex(c.PropertiesText, "UNIQ_KEY\x01")+9:]
		last = last[:strings.Index(last, "\x02")]
		if v, _ := Property(r.Properties, PropUniqKey); string(v) != last {
			t.Errorf("line %d: UNIQ_KEY %s, want %s", line, v, last)
		}
	})
}

func TestGoldenProperties(t *testing.T) {
	golden(t, "props.jsonl", func(line int, c struct {
		Text *string
		Map  map[string]string
	}) {
		if c.Map == nil || c.Text == nil {
			return // an encoder's case, in the order of a Java hash map
		}
		text := *c.Text
		got := DecodeProperties([]byte(text))
		if len(got) != len(c.Map) {
			t.Errorf("line %d: %q gives %q, want %q", line, text, got, c.Map)
		}
		for k, v := range c.Map {
			if got[k] != v {
				t.Errorf("line %d: %q gives %q, want %q", line, text, got, c.Map)
			}
			if one, ok := Property([]byte(text), k); !ok || string(one) != v {
				t.Errorf("line %d: Property(%q) = %q, %v", line, k, one, ok)
			}
			if left := DecodeProperties(DropProperty(nil, []byte(text), k)); len(left) != len(c.Map)-1 {
				t.Errorf("line %d: without %q: %q", line, k, left)
			}
		}
	})
}

func TestGoldenHashes(t *testing.T) {
	golden(t, "hash.jsonl", func(line int, c struct {
		S        *string
		HashCode *int32
		TagsCode *int64
		CRC32    *uint32
	}) {
		if c.S == nil || c.HashCode == nil {
			return
		}
		if Hash([]byte(*c.S)) != *c.HashCode || HashString(*c.S) != *c.HashCode {
			t.Errorf("line %d: hash of %q is %d, want %d", line, *c.S, Hash([]byte(*c.S)), *c.HashCode)
		}
		if c.TagsCode != nil && TagsCode([]byte(*c.S)) != *c.TagsCode {
			t.Errorf("line %d: tags code of %q is %d", line, *c.S, TagsCode([]byte(*c.S)))
		}
		if c.CRC32 != nil && CRC([]byte(*c.S)) != *c.CRC32 {
			t.Errorf("line %d: checksum of %q is %d", line, *c.S, CRC([]byte(*c.S)))
		}
	})
}

func TestGoldenBatches(t *testing.T) {
	golden(t, "batch.jsonl", func(line int, c struct {
		Hex   string
		Props []string
	}) {
		raw, _ := hex.DecodeString(c.Hex)
		i := 0
		var again []byte
		err := EachBatchItem(raw, func(it *BatchItem) error {
			if i < len(c.Props) && string(it.Properties) != c.Props[i] {
				t.Errorf("line %d item %d: %q", line, i, it.Properties)
			}
			i++
			again = AppendBatchItem(again, it.Flag, it.Body, it.Properties)
			return nil
		})
		if err != nil || i != len(c.Props) || !bytes.Equal(again, raw) {
			t.Errorf("line %d: %d items, %v", line, i, err)
		}
	})
}

func TestGoldenIDs(t *testing.T) {
	golden(t, "msgid.jsonl", func(line int, c struct {
		Host, MsgID string
		Port        int
		Offset      any
	}) {
		if c.MsgID == "" || c.Host == "" {
			return
		}
		host, off, err := ParseID(c.MsgID)
		if err != nil || host.Addr() != netip.MustParseAddr(c.Host) || int(host.Port()) != c.Port {
			t.Errorf("line %d: %v %d %v", line, host, off, err)
		}
		if string(AppendID(nil, host, off)) != c.MsgID {
			t.Errorf("line %d: %s", line, AppendID(nil, host, off))
		}
	})
	for _, bad := range []string{"", "x", strings.Repeat("Z", 32), strings.Repeat("F", 32), strings.Repeat("0", 33), strings.Repeat("0", 1<<20)} {
		if _, _, err := ParseID(bad); err == nil || len(err.Error()) > 300 {
			t.Errorf("ParseID of %d characters: %v", len(bad), err)
		}
	}
}

func TestGoldenNames(t *testing.T) {
	golden(t, "names.jsonl", func(line int, c struct {
		Topic          *string
		Valid          bool
		Remark         string
		IsSystem       any
		NotAllowedSend bool
	}) {
		if c.Topic == nil || *c.Topic == "" && c.Remark == "" {
			return
		}
		err := ValidateTopic(*c.Topic)
		if (err == nil) != c.Valid {
			t.Errorf("line %d: topic %q: %v, want valid %v", line, *c.Topic, err, c.Valid)
		}
		if err != nil && err.Error() != c.Remark {
			t.Errorf("line %d: topic %q: remark %q, want %q", line, *c.Topic, err, c.Remark)
		}
		if sys, ok := c.IsSystem.(bool); ok && IsSystemTopic(*c.Topic) != sys {
			t.Errorf("line %d: topic %q: system %v", line, *c.Topic, !sys)
		}
		if NotAllowedSendTopic(*c.Topic) != c.NotAllowedSend {
			t.Errorf("line %d: topic %q: not allowed to send %v", line, *c.Topic, !c.NotAllowedSend)
		}
	})
}

func TestUniqIDs(t *testing.T) {
	u := NewUniqIDs(netip.MustParseAddr("192.0.2.2"), 17706)
	seen := map[string]bool{}
	for i := 0; i < 70000; i++ {
		id := string(u.Append(nil))
		if len(id) != 32 || !strings.HasPrefix(id, "C0000202452A") {
			t.Fatalf("id %s", id)
		}
		seen[id] = true
	}
	if len(seen) < 65000 {
		t.Errorf("%d different ids of 70000", len(seen))
	}
	if id := NewUniqIDs(netip.MustParseAddr("2001:db8::1"), 1).Append(nil); len(id) != 56 {
		t.Errorf("id of an IPv6 host: %s", id)
	}
}

func TestParseAllocates(t *testing.T) {
	m := Message{Topic: []byte("T"), BornHost: netip.MustParseAddrPort("10.0.0.1:1"), StoreHost: netip.MustParseAddrPort("10.0.0.2:2"), Body: make([]byte, 1024), Properties: []byte("KEYS\x01k\x02TAGS\x01TagA\x02")}
	buf := make([]byte, 0, 4096)
	var r Record
	n := testing.AllocsPerRun(100, func() {
		rec, err := AppendRecord(buf[:0], &m)
		if err != nil || Parse(rec, &r) != nil || !r.BodyValid() {
			t.Fatal("round trip")
		}
		if v, ok := Property(r.Properties, PropTags); !ok || TagsCode(v) != 2598919 {
			t.Fatal("tags")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per message", n)
	}
}

func FuzzParse(f *testing.F) {
	golden(f, "messages.jsonl", func(_ int, c messageCase) {
		if raw, err := hex.DecodeString(c.Hex); err == nil && len(raw) < 4096 {
			f.Add(raw)
		}
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Record
		if err := Parse(b, &r); err != nil {
			return
		}
		if int(r.Size) > len(b) {
			t.Fatalf("size %d of %d bytes", r.Size, len(b))
		}
		m := Message{Topic: r.Topic, QueueID: r.QueueID, Flag: r.Flag, SysFlag: r.SysFlag, BornTime: r.BornTime, BornHost: r.BornHost, StoreHost: r.StoreHost,
			ReconsumeTimes: r.ReconsumeTimes, PreparedOffset: r.PreparedOffset, Body: r.Body, Properties: r.Properties}
		if len(r.Topic) > 0 && len(r.Topic) <= MaxTopicLenStore {
			if _, err := AppendRecord(nil, &m); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzProperties(f *testing.F) {
	golden(f, "props.jsonl", func(_ int, c struct{ Text string }) { f.Add([]byte(c.Text), "a") })
	f.Fuzz(func(t *testing.T, props []byte, name string) {
		m := DecodeProperties(props)
		v, ok := Property(props, name)
		if want, has := m[name]; name != "" && !strings.ContainsAny(name, "\x01\x02") && (ok != has || string(v) != want) {
			t.Fatalf("Property(%q, %q) = %q, %v; the map has %q, %v", props, name, v, ok, want, has)
		}
		if again := DecodeProperties(EncodeProperties(m)); len(again) != len(m) {
			t.Fatalf("%q became %q", m, again)
		}
	})
}

func FuzzBatch(f *testing.F) {
	golden(f, "batch.jsonl", func(_ int, c struct{ Hex string }) {
		raw, _ := hex.DecodeString(c.Hex)
		f.Add(raw)
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		if err := EachBatchItem(b, func(it *BatchItem) error {
			again = AppendBatchItem(again, it.Flag, it.Body, it.Properties)
			return nil
		}); err == nil && len(again) != len(b) {
			t.Fatalf("%d bytes became %d", len(b), len(again))
		}
	})
}

func FuzzParseID(f *testing.F) {
	f.Add("0A01020300002A9F0000000000001234")
	f.Fuzz(func(t *testing.T, s string) {
		host, off, err := ParseID(s)
		if err == nil && !strings.EqualFold(string(AppendID(nil, host, off)), s) && !host.Addr().Is4In6() {
			t.Fatalf("%s became %s", s, AppendID(nil, host, off))
		}
	})
}
