package namesrv

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a name server on loopback.
type world struct {
	t    *testing.T
	s    *Server
	set  *conf.Set
	addr string
}

// start runs a name server whose key-value file is dir/kv/kvConfig.json; file may be empty.
func start(t *testing.T, dir, file string, keys ...string) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	set := conf.New(log)
	require.NoError(t, set.Register(new(Config)))
	require.NoError(t, set.Load(file))
	set.Put("bindAddress", "127.0.0.1")
	set.Put("listenPort", "0")
	set.Put("kvConfigPath", filepath.Join(dir, "kv", "kvConfig.json"))
	for i := 0; i+1 < len(keys); i += 2 {
		require.True(t, set.Put(keys[i], keys[i+1]), keys[i])
	}
	s, err := New(Options{Settings: set, Log: log})
	require.NoError(t, err)
	require.NoError(t, s.Start())
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &world{t, s, set, s.Addr().String()}
}

func (w *world) dial() *wiretest.Peer { return wiretest.Dial(w.t, w.addr) }

// fields makes a header of names and values.
func fields(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// registration is a request of a broker of cluster c.
func registration(broker, addr string, id int, state int, topics ...string) (map[string]string, []byte) {
	table := map[string]any{}
	for _, name := range topics {
		table[name] = map[string]any{"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG"}
	}
	body, err := json.Marshal(map[string]any{"filterServerList": []string{}, "topicConfigSerializeWrapper": map[string]any{
		"dataVersion": map[string]any{"counter": 1, "stateVersion": state, "timestamp": 1}, "topicConfigTable": table}})
	if err != nil {
		panic(err)
	}
	return fields("brokerName", broker, "brokerAddr", addr, "clusterName", "c", "haServerAddr", addr+"-ha", "brokerId", strconv.Itoa(id),
		"compressed", "false", "bodyCrc32", fmt.Sprint(crc32.ChecksumIEEE(body)&0x7FFFFFFF)), body
}

func (w *world) register(p *wiretest.Peer, broker, addr string, id, state int, topics ...string) {
	w.t.Helper()
	ext, body := registration(broker, addr, id, state, topics...)
	require.Equal(w.t, protocol.Success, p.Call(protocol.ReqRegisterBroker, ext, body).Code)
}

// route returns the addresses that a topic's route shows, by broker id; nil without a route.
func (w *world) route(p *wiretest.Peer, topic string) map[string]string {
	w.t.Helper()
	answer := p.Call(protocol.ReqGetRouteInfoByTopic, fields("topic", topic), nil)
	if answer.Code == protocol.TopicNotExist {
		return nil
	}
	require.Equal(w.t, protocol.Success, answer.Code, answer.Remark)
	var body struct {
		BrokerDatas []struct{ BrokerAddrs map[string]string }
	}
	require.NoError(w.t, json.Unmarshal(answer.Body, &body), "standard JSON")
	require.Len(w.t, body.BrokerDatas, 1)
	return body.BrokerDatas[0].BrokerAddrs
}

// TestStaleFarewells is HA-07: late or old farewells of a former master do not remove the new one.
func TestStaleFarewells(t *testing.T) {
	w := start(t, t.TempDir(), "")
	asks, s1, s2 := w.dial(), w.dial(), w.dial()
	w.register(s1, "bx", "addr1", 0, 1, "T", "U")
	w.register(s2, "bx", "addr2", 0, 2, "T", "U")
	require.Equal(t, protocol.Success, s1.Call(protocol.ReqUnregisterBroker, fields("brokerName", "bx", "brokerAddr", "addr1", "clusterName", "c", "brokerId", "0"), nil).Code)
	require.Equal(t, map[string]string{"0": "addr2"}, w.route(asks, "T"))
	w.register(s1, "bx", "addr1", 1, 2, "T", "U")
	require.Equal(t, map[string]string{"0": "addr2", "1": "addr1"}, w.route(asks, "T"))
	require.NoError(t, s1.Conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, s1.Conn.Close())
	require.Eventually(t, func() bool { return len(w.route(asks, "T")) == 1 }, wiretest.Timeout, time.Millisecond)
	require.Equal(t, map[string]string{"0": "addr2"}, w.route(asks, "T"))

	// The same address through another connection outlives the old connection.
	old, fresh := w.dial(), w.dial()
	w.register(old, "by", "y", 0, 1, "Y", "Z")
	w.register(fresh, "by", "y", 0, 1, "Y", "Z")
	require.NoError(t, old.Conn.Close())
	marker := w.dial() // registered after the close and gone after it: by then the close was seen
	w.register(marker, "bz", "z", 0, 1, "M", "N")
	require.NoError(t, marker.Conn.Close())
	require.Eventually(t, func() bool { return w.route(asks, "M") == nil }, wiretest.Timeout, time.Millisecond)
	require.Equal(t, map[string]string{"0": "y"}, w.route(asks, "Y"))
	require.NoError(t, fresh.Conn.Close())
	require.Eventually(t, func() bool { return w.route(asks, "Y") == nil }, wiretest.Timeout, time.Millisecond)
}

func TestSilentBrokerIsDropped(t *testing.T) {
	w := start(t, t.TempDir(), "")
	asks, b := w.dial(), w.dial()
	ext, body := registration("b", "addr", 0, 1, "T", "U")
	ext["heartbeatTimeoutMillis"] = "1"
	require.Equal(t, protocol.Success, b.Call(protocol.ReqRegisterBroker, ext, body).Code)
	require.Eventually(t, func() bool { return w.route(asks, "T") == nil }, wiretest.Timeout, time.Millisecond)
	require.NoError(t, b.Conn.SetReadDeadline(time.Now().Add(wiretest.Timeout)))
	_, err := b.Conn.Read(make([]byte, 1))
	require.Error(t, err, "its connection is closed")
	require.Contains(t, w.s.table.String(), "0 live brokers")
}

func TestRegistrationRefused(t *testing.T) {
	w := start(t, t.TempDir(), "")
	p := w.dial()
	ext, body := registration("b", "addr", 0, 1, "T")
	a := p.Call(protocol.ReqRegisterBroker, ext, body)
	require.Equal(t, []any{protocol.SystemError, "register broker failed"}, []any{a.Code, a.Remark}, "one topic of an unknown broker")
	ext["bodyCrc32"] = "1"
	a = p.Call(protocol.ReqRegisterBroker, ext, body)
	require.Equal(t, []any{protocol.SystemError, "crc32 not match"}, []any{a.Code, a.Remark})
	delete(ext, "brokerName")
	a = p.Call(protocol.ReqRegisterBroker, ext, body)
	require.Equal(t, protocol.SystemError, a.Code)
	ext, _ = registration("b", "addr", 0, 1)
	for _, bad := range []string{"{{{", "\x78\x9c\x00", "[1,2"} {
		delete(ext, "bodyCrc32")
		require.Equal(t, protocol.SystemError, p.Call(protocol.ReqRegisterBroker, ext, []byte(bad)).Code, bad)
	}
	require.Nil(t, w.route(p, "T"))
	a = p.Call(protocol.ReqGetTopicsByCluster, fields("cluster", "c"), nil)
	require.Equal(t, `{"topicList":[]}`, string(a.Body), "a refused registration leaves nothing behind")
}

// TestRegistrationBodies is CL-03: bodies of other versions of brokers register.
func TestRegistrationBodies(t *testing.T) {
	var squeezed bytes.Buffer
	z := zlib.NewWriter(&squeezed)
	section := func(text string) {
		require.NoError(t, binary.Write(z, binary.BigEndian, int32(len(text))))
		_, err := z.Write([]byte(text))
		require.NoError(t, err)
	}
	section(`{"counter":1,"stateVersion":0,"timestamp":1}`)
	require.NoError(t, binary.Write(z, binary.BigEndian, int32(2)))
	section(`T 4 4 6 SINGLE_TAG {"+message.type":"FIFO"}`)
	section(`U 4 4 6 SINGLE_TAG`)
	section(`[]`)
	require.NoError(t, z.Close())
	topics := `"topicConfigTable":{"T":{"perm":6,"readQueueNums":4,"topicName":"T","writeQueueNums":4},"U":{"topicName":"U"}}`
	wrapped := func(version string) string {
		return `{"filterServerList":[],"topicConfigSerializeWrapper":{` + version + topics + `}}`
	}
	for name, c := range map[string]struct {
		body    string
		crc     string // "": right
		version int32
		ext     []string
		empty   bool
	}{
		"plain":                        {body: wrapped(`"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},`)},
		"version null":                 {body: wrapped(`"dataVersion":null,`)},
		"no version":                   {body: wrapped("")},
		"version without state":        {body: wrapped(`"dataVersion":{"counter":1,"timestamp":1},`)},
		"no checksum":                  {body: wrapped(""), crc: "0"},
		"knows acting masters":         {body: wrapped(""), ext: []string{"enableActingMaster", "true", "heartbeatTimeoutMillis", "10000"}},
		"before bodies were wrapped":   {body: `{"dataVersion":{"counter":1},` + topics + `}`, version: 36},
		"empty":                        {empty: true},
		"compressed":                   {body: squeezed.String(), ext: []string{"compressed", "true"}},
		"compressed, not said so":      {body: squeezed.String()},
		"compressed, without mappings": {body: squeezed.String(), version: 400},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, t.TempDir(), "")
			p := w.dial()
			ext, _ := registration("b", "addr", 0, 1)
			for i := 0; i+1 < len(c.ext); i += 2 {
				ext[c.ext[i]] = c.ext[i+1]
			}
			sum := func(off uint32) string { return fmt.Sprint((crc32.ChecksumIEEE([]byte(c.body)) + off) & 0x7FFFFFFF) }
			cmd := protocol.NewRequest(protocol.ReqRegisterBroker, ext, []byte(c.body))
			if c.version != 0 {
				cmd.Version = c.version
			}
			if ext["bodyCrc32"] = sum(1); !c.empty {
				p.Write(cmd.Append(nil))
				a := p.Read()
				require.Equal(t, []any{protocol.SystemError, "crc32 not match"}, []any{a.Code, a.Remark})
				require.Nil(t, w.route(p, "T"))
			}
			if ext["bodyCrc32"] = c.crc; c.crc == "" {
				ext["bodyCrc32"] = sum(0)
			}
			p.Write(cmd.Append(nil))
			require.Equal(t, protocol.Success, p.Read().Code)
			if c.empty {
				require.Contains(t, string(p.Call(protocol.ReqGetBrokerClusterInfo, nil, nil).Body), "addr")
				return
			}
			require.Equal(t, map[string]string{"0": "addr"}, w.route(p, "T"))
			require.Equal(t, map[string]string{"0": "addr"}, w.route(p, "U"))
		})
	}
}

func TestSlaveLearnsItsMaster(t *testing.T) {
	w := start(t, t.TempDir(), "")
	p := w.dial()
	w.register(p, "b", "master", 0, 1, "T", "U")
	ext, body := registration("b", "slave", 1, 1, "T", "U")
	require.Equal(t, map[string]string{"masterAddr": "master", "haServerAddr": "master-ha"}, p.Call(protocol.ReqRegisterBroker, ext, body).Ext)
}

func TestSmallestBrokerIDIsTold(t *testing.T) {
	w := start(t, t.TempDir(), "", "notifyMinBrokerIdChanged", "true", "supportActingMaster", "true")
	told := make(chan map[string]string, 4)
	mux := remoting.NewMux()
	mux.Handle(protocol.ReqNotifyMinBrokerIDChange, remoting.Inline, func(req *remoting.Request, _ *remoting.Response) error {
		told <- map[string]string{"id": req.String("minBrokerId"), "addr": req.String("minBrokerAddr"), "gone": req.String("offlineBrokerAddr")}
		return nil
	})
	slave := wiretest.Serve(t, mux)
	p := w.dial()
	for id, addr := range []string{"master", slave} {
		ext, body := registration("b", addr, id, 1, "T", "U")
		ext["enableActingMaster"] = "true"
		require.Equal(t, protocol.Success, p.Call(protocol.ReqRegisterBroker, ext, body).Code)
	}
	require.Equal(t, protocol.Success, p.Call(protocol.ReqUnregisterBroker, fields("brokerName", "b", "brokerAddr", "master", "clusterName", "c", "brokerId", "0"), nil).Code)
	require.Equal(t, map[string]string{"id": "1", "addr": slave, "gone": "master"}, <-told)
	require.Equal(t, map[string]string{"0": slave}, w.route(p, "T"), "it acts as master")
}

func TestKV(t *testing.T) {
	dir := t.TempDir()
	w := start(t, dir, "", "orderMessageEnable", "true")
	p := w.dial()
	for _, kv := range [][3]string{{"ns", "k", "v"}, {"ns", "k", "v2"}, {"ns", "gone", "x"}, {orderTopicNamespace, "T", "b:4"}} {
		require.Equal(t, protocol.Success, p.Call(protocol.ReqPutKVConfig, fields("namespace", kv[0], "key", kv[1], "value", kv[2]), nil).Code)
	}
	require.Equal(t, protocol.Success, p.Call(protocol.ReqDeleteKVConfig, fields("namespace", "ns", "key", "gone"), nil).Code)
	require.Equal(t, protocol.Success, p.Call(protocol.ReqDeleteKVConfig, fields("namespace", "none", "key", "none"), nil).Code)
	a := p.Call(protocol.ReqPutKVConfig, fields("namespace", "", "key", "k", "value", "v"), nil)
	require.Equal(t, []any{protocol.SystemError, "namespace or key is null"}, []any{a.Code, a.Remark})

	// Brokers get the ordered topics with their registration, clients with the route.
	ext, body := registration("b", "addr", 0, 1, "T", "U")
	require.Equal(t, `{"table":{"T":"b:4"}}`, string(p.Call(protocol.ReqRegisterBroker, ext, body).Body))
	require.Contains(t, string(p.Call(protocol.ReqGetRouteInfoByTopic, fields("topic", "T"), nil).Body), `"orderTopicConf":"b:4"`)
	require.NoError(t, w.s.Close())

	path := filepath.Join(dir, "kv", "kvConfig.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.JSONEq(t, `{"configTable":{"ns":{"k":"v2"},"ORDER_TOPIC_CONFIG":{"T":"b:4"}}}`, string(text))
	w = start(t, dir, "")
	require.Equal(t, fields("value", "v2"), w.dial().Call(protocol.ReqGetKVConfig, fields("namespace", "ns", "key", "k"), nil).Ext)
	require.NoError(t, w.s.Close())

	// A torn file is read from its copy; a broken pair is an error that names the file.
	require.NoError(t, os.WriteFile(path, []byte(`{"configTab`), 0o600))
	w = start(t, dir, "")
	require.Equal(t, protocol.Success, w.dial().Call(protocol.ReqGetKVListByNamespace, fields("namespace", "ns"), nil).Code)
	require.NoError(t, w.s.Close())
	require.NoError(t, os.WriteFile(path+".bak", []byte(`{"configTab`), 0o600))
	_, err = New(Options{Settings: w.set, Log: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "kvConfig.json")
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "namesrv.conf")
	require.NoError(t, os.WriteFile(file, []byte("# mine\norderMessageEnable=false\n"), 0o600))
	w := start(t, dir, file)
	p := w.dial()
	text := string(p.Call(protocol.ReqGetNamesrvConfig, nil, nil).Body)
	require.Contains(t, text, "\nlistenPort="+strconv.Itoa(w.s.Port())+"\n")
	require.Contains(t, text, "\nkvConfigPath="+dir)

	update := func(body string) *protocol.Command {
		return p.Call(protocol.ReqUpdateNamesrvConfig, nil, []byte(body))
	}
	require.Equal(t, protocol.Success, update("orderMessageEnable=true\nnoSuchKey=1\nenableTopicList=false\ndeleteTopicWithBrokerRegistration=true\n").Code)
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "# mine\norderMessageEnable=true\ndeleteTopicWithBrokerRegistration=true\nenableTopicList=false\n", string(kept))
	a := p.Call(protocol.ReqGetTopicsByCluster, fields("cluster", "c"), nil)
	require.Equal(t, []any{protocol.SystemError, "disable"}, []any{a.Code, a.Remark}, "it acts at once")
	w.register(p, "b", "addr", 0, 1, "T", "U", "V")
	w.register(p, "b", "addr", 0, 2, "T", "U")
	require.Nil(t, w.route(p, "V"), "so does this one")

	for _, key := range []string{"kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome"} {
		a = update(key + "=/tmp/x\nenableTopicList=true\n")
		require.Equal(t, []any{protocol.NoPermission, "Can not update config in black list."}, []any{a.Code, a.Remark}, key)
	}
	require.Equal(t, protocol.SystemError, update("waitSecondsForService=soon").Code)
	require.Equal(t, protocol.SystemError, update("listenPort=70000").Code)
	require.Contains(t, string(p.Call(protocol.ReqGetNamesrvConfig, nil, nil).Body), "\nenableTopicList=false\n")
	require.Equal(t, protocol.Success, update("").Code)
}

func TestNotReady(t *testing.T) {
	w := start(t, t.TempDir(), "", "needWaitForService", "true")
	a := w.dial().Call(protocol.ReqGetRouteInfoByTopic, fields("topic", "T"), nil)
	require.Equal(t, []any{protocol.SystemError, "name server not ready"}, []any{a.Code, a.Remark})
}

func TestStartAndStop(t *testing.T) {
	w := start(t, t.TempDir(), "")
	p := w.dial()
	w.register(p, "b", "addr", 0, 1, "T", "U")
	require.NoError(t, w.s.Close())
	require.NoError(t, w.s.Close())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	w.set.Put("listenPort", strings.TrimPrefix(l.Addr().String(), "127.0.0.1:"))
	s, err := New(Options{Settings: w.set, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.Error(t, s.Start(), "the port is taken")
	require.NoError(t, s.Close())
}
