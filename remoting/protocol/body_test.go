package protocol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zlib"

	"github.com/epochmq/epochmq/internal/fastjson"
)

type decodeCase struct {
	Class, In, InHex string
	Out              *string
}

func decodeCases(t testing.TB) (all []decodeCase) {
	t.Helper()
	f, err := os.Open("testdata/json_decode.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var c decodeCase
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// bodies are the types that the captured cases name.
var bodies = map[string]func() any{
	"TopicRouteData": func() any { return &TopicRouteData{} }, "ConsumeStats": func() any { return &ConsumeStats{} },
	"HeartbeatData": func() any { return &HeartbeatData{} }, "LockBatchRequestBody": func() any { return &LockBatchRequestBody{} },
	"TopicConfig": func() any { return &TopicConfig{} }, "SubscriptionGroupConfig": func() any { return &SubscriptionGroupConfig{} },
	"KVTable": func() any { return &KVTable{} }, "DataVersion": func() any { return &DataVersion{} }, "ResetOffsetBody": func() any { return &ResetOffsetBody{} },
}

// TestBodiesReadAsJavaReads decodes odd input and compares with what RocketMQ's own classes made of it. Empty lists and tables may be
// absent, and an enum that is not known may be refused where Java drops it.
func TestBodiesReadAsJavaReads(t *testing.T) {
	seen := 0
	for _, c := range decodeCases(t) {
		fresh, ok := bodies[c.Class]
		if !ok || c.Out == nil {
			continue
		}
		v := fresh()
		err := fastjson.Unmarshal([]byte(c.In), v)
		if strings.HasPrefix(*c.Out, "throws") {
			if err == nil && c.Class != "KVTable" { // a bare number as a name is read here
				t.Errorf("%s %q was read; Java %s", c.Class, c.In, *c.Out)
			}
			continue
		}
		if err != nil {
			if !strings.Contains(c.In, "BAD") {
				t.Errorf("%s %q: %v; Java reads %s", c.Class, c.In, err, *c.Out)
			}
			continue
		}
		seen++
		out, err := fastjson.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(c.In, `"type":"BAD"`) {
			continue // kept as it came, where Java drops it
		}
		if got, want := squeeze(t, out), squeeze(t, []byte(*c.Out)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s %q\n gives %s\n  Java %s", c.Class, c.In, out, *c.Out)
		}
	}
	if seen < 15 {
		t.Fatalf("only %d cases", seen)
	}
}

// squeeze parses a body and drops what is empty.
func squeeze(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	if err := fastjson.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return dropEmpty(v)
}

func dropEmpty(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			switch e = dropEmpty(e); w := e.(type) {
			case nil:
				delete(x, k)
			case []any:
				if len(w) == 0 {
					delete(x, k)
				}
			case map[string]any:
				if len(w) == 0 {
					delete(x, k)
				}
			case string:
				if w == "" {
					delete(x, k)
				}
			}
		}
	case []any:
		for i := range x {
			x[i] = dropEmpty(x[i])
		}
	}
	return v
}

func TestRegisterBodies(t *testing.T) {
	compressedHex := ""
	for _, c := range decodeCases(t) {
		if c.Class == "RegisterBrokerBody" && strings.HasPrefix(c.InHex, "78da") && len(c.InHex) > 100 {
			compressedHex = c.InHex
		}
	}
	raw, err := hex.DecodeString(compressedHex)
	if err != nil || len(raw) == 0 {
		t.Fatalf("no compressed registration among the cases: %v", err)
	}
	// RocketMQ 5.3 compresses and says that it does not.
	for _, said := range []bool{true, false} {
		b, err := DecodeRegisterBody(raw, said, 479)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Topics.TopicConfigTable) == 0 {
			t.Errorf("no topic in %+v", b)
		}
		for name, c := range b.Topics.TopicConfigTable {
			if name == "" || c.TopicName != name || c.ReadQueueNums == 0 || c.Perm == 0 {
				t.Errorf("topic %q: %+v", name, c)
			}
		}
	}
	plain := `{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"T1":{"perm":6,"readQueueNums":4,"topicName":"T1","writeQueueNums":4}}}}`
	b, err := DecodeRegisterBody([]byte(plain), false, 401)
	if err != nil || b.Topics.TopicConfigTable["T1"] == nil || b.Topics.DataVersion.Counter != 1 {
		t.Errorf("plain: %+v %v", b, err)
	}
	if b, err := DecodeRegisterBody(nil, false, 401); err != nil || len(b.Topics.TopicConfigTable) != 0 {
		t.Errorf("empty: %+v %v", b, err)
	}
	old := `{"dataVersion":{"counter":7},"topicConfigTable":{"T1":{"topicName":"T1"}}}`
	if b, err := DecodeRegisterBody([]byte(old), false, 36); err != nil || b.Topics.DataVersion.Counter != 7 {
		t.Errorf("older than full bodies: %+v %v", b, err)
	}
	if again, err := b.Encode(); err != nil || !bytes.Contains(again, []byte(`"topicQueueMappingInfoMap":{}`)) {
		t.Errorf("encoded: %s %v", again, err)
	}
	for name, bad := range map[string][]byte{"cut": raw[:len(raw)/2], "garbage": []byte("x\x9c garbage"), "not compressed": []byte("{"), "huge count": squash([]byte{0, 0, 0, 2, '{', '}', 0x7f, 0xff, 0xff, 0xff}),
		"negative": squash([]byte{0xff, 0xff, 0xff, 0xff})} {
		if _, err := DecodeRegisterBody(bad, name != "not compressed", 479); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func squash(b []byte) []byte {
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func TestRouteForms(t *testing.T) {
	r := TopicRouteData{BrokerDatas: []BrokerData{{BrokerAddrs: map[int64]string{0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}, BrokerName: "b-a", Cluster: "c1"}},
		QueueDatas: []QueueData{{BrokerName: "b-a", Perm: 6, ReadQueueNums: 4, WriteQueueNums: 4}}}
	legacy := `{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b-a","cluster":"c1","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}`
	if b, err := r.Encode(false); err != nil || string(b) != legacy {
		t.Errorf("%s %v", b, err)
	}
	if b, err := r.Encode(true); err != nil || string(b) != strings.Replace(legacy, `{0:"10.0.0.1:10911",1:`, `{"0":"10.0.0.1:10911","1":`, 1) {
		t.Errorf("%s %v", b, err)
	}
}

func FuzzRegisterBody(f *testing.F) {
	for _, c := range decodeCases(f) {
		if raw, err := hex.DecodeString(c.InHex); err == nil && len(raw) > 0 {
			f.Add(raw, true)
		}
		f.Add([]byte(c.In), false)
	}
	var section [8]byte
	binary.BigEndian.PutUint32(section[:], 4)
	f.Add(squash(section[:]), true)
	f.Fuzz(func(t *testing.T, b []byte, compressed bool) {
		body, err := DecodeRegisterBody(b, compressed, 479)
		if err == nil {
			if _, err := body.Encode(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzBodies(f *testing.F) {
	for _, c := range decodeCases(f) {
		f.Add([]byte(c.In))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, fresh := range bodies {
			v := fresh()
			if fastjson.Unmarshal(b, v) == nil {
				if _, err := fastjson.Marshal(v); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
	})
}
