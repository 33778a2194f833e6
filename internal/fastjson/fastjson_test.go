package fastjson

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestConfigFilesKeepTheirBytes parses RocketMQ's own files and writes them again. A parsed array does not tell a list from a set, so
// only files without arrays can be compared in this way; the broker's tables compare theirs.
func TestConfigFilesKeepTheirBytes(t *testing.T) {
	for _, name := range []string{"topics.json", "delayOffset.json", "messageRequestMode.json"} {
		data, err := os.ReadFile(filepath.Join("testdata/config", name))
		if err != nil {
			t.Fatal(err)
		}
		n, err := Parse(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := MarshalPretty(n)
		if err != nil {
			t.Fatal(err)
		}
		if string(again) != string(data) {
			t.Errorf("%s became\n%s\nfrom\n%s", name, again, data)
		}
	}
}

type version struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"`
}

type offsetFile struct {
	DataVersion   version             `json:"dataVersion"`
	GroupTopicMap Pairs               `json:"groupTopicMap"`
	OffsetTable   map[string]intTable `json:"offsetTable"`
}

type intTable map[int32]int64

func TestOffsetFileLayout(t *testing.T) {
	type set struct {
		Topics []string `json:"t,set"`
	}
	b, err := MarshalPretty(offsetFile{DataVersion: version{1, 0, 5}, OffsetTable: map[string]intTable{"T@g": {1: 4, 0: 3}, "S@g": {0: 0}}, GroupTopicMap: Pairs{{"g", []string(nil)}}})
	if err != nil {
		t.Fatal(err)
	}
	want := "{\n\t\"dataVersion\":{\n\t\t\"counter\":1,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":5\n\t},\n\t\"groupTopicMap\":{\n\t\t\"g\":[]\n\t},\n\t\"offsetTable\":{\n\t\t\"S@g\":{0:0\n\t\t},\n\t\t\"T@g\":{0:3,1:4\n\t\t}\n\t}\n}"
	if string(b) != want {
		t.Errorf("got\n%s\nwant\n%s", b, want)
	}
	if b, _ := MarshalPretty(set{[]string{"a", "b"}}); string(b) != "{\n\t\"t\":[\"a\",\"b\"]\n}" {
		t.Errorf("set: %s", b)
	}
}

func TestMarshal(t *testing.T) {
	name := "x"
	for want, v := range map[string]any{
		`{"a":{0:"x",1:"y"}}`:                              map[string]any{"a": map[int64]string{1: "y", 0: "x"}},
		`{{"counter":1,"stateVersion":2,"timestamp":3}:5}`: Pairs{{version{1, 2, 3}, 5}},
		`[0.0,1.5,1.0E20,-2.0,1.0E-5]`:                     []float64{0, 1.5, 1e20, -2, 1e-5},
		`"a\"\\/\u0001\u007F\u2028<>&标🚀"`:                  "a\"\\/\x01\x7f\u2028<>&标🚀",
		`{"Name":"x"}`:                                     struct{ Name, Gone *string }{&name, nil},
		`{"b":"AQI="}`:                                     map[string][]byte{"b": {1, 2}},
		`[true,null,"s",7]`:                                []any{true, nil, "s", 7},
	} {
		b, err := Marshal(v)
		if err != nil || string(b) != want {
			t.Errorf("%#v: %s, %v; want %s", v, b, err, want)
		}
	}
	b, err := MarshalBrowser(map[string]any{"é/": map[int]string{1: "🚀"}})
	if err != nil || string(b) != `{"\u00E9\/":{"1":"\uD83D\uDE80"}}` {
		t.Errorf("browser form: %s, %v", b, err)
	}
	if !json.Valid(b) {
		t.Error("the browser form is not JSON")
	}
	if _, err := Marshal(make(chan int)); err == nil {
		t.Error("a channel was written")
	}
}

func TestUnmarshal(t *testing.T) {
	type inner struct {
		Addr map[int64]string `json:"brokerAddrs"`
		Name string           `json:"brokerName"`
	}
	type outer struct {
		List   []inner         `json:"brokerDatas"`
		Perm   int32           `json:"perm"`
		On     bool            `json:"on"`
		Rate   float64         `json:"rate"`
		Keys   map[string]int  `json:"keys"`
		Any    any             `json:"any"`
		Camel  string          `json:"camelCase"`
		Opaque json.RawMessage `json:"opaque"`
	}
	var o outer
	text := `/*c*/{brokerDatas:[{'brokerAddrs':{0:"a:1","1":'b:2',2L:"c"},brokerName:"\u6807\x41",},],"perm":"6","on":"TRUE","rate":"1.5",
		"keys":{{topic:'T',queueId:1}:4},"any":[1,{"x":null}],"unknown":{"a":[1,2]},"perm":6.7,camel_case:'y',"opaque":{a:1} // end
	}`
	if err := Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	want := outer{List: []inner{{map[int64]string{0: "a:1", 1: "b:2", 2: "c"}, "标A"}}, Perm: 6, On: true, Rate: 1.5, Keys: map[string]int{`{"topic":"T","queueId":1}`: 4},
		Any: []any{int64(1), map[string]any{"x": nil}}, Camel: "y", Opaque: json.RawMessage(`{"a":1}`)}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("got  %+v\nwant %+v", o, want)
	}
	for _, empty := range []string{"", " \n", "null"} {
		if err := Unmarshal([]byte(empty), &o); err != nil {
			t.Errorf("%q: %v", empty, err)
		}
	}
	for _, bad := range []string{"{", "[1", `{"a"}`, `{"a":}`, "{}x", `"a`, `{"perm":"x"}`, `{"perm":99999999999}`, `{"brokerDatas":7}`, `[,]`, `{"a":tru}`, `"\q"`, `"\u12"`, strings.Repeat("[", 1<<20), strings.Repeat("{a:", 1<<20), "-", "1.2.3"} {
		var o outer
		if err := Unmarshal([]byte(bad), &o); err == nil {
			t.Errorf("%.40q was read", bad)
		} else if len(err.Error()) > 200 {
			t.Errorf("%.40q: an error of %d bytes", bad, len(err.Error()))
		}
	}
	var syntax *SyntaxError
	if err := Unmarshal([]byte(`{"a":1]`), &o); !errors.As(err, &syntax) || syntax.Offset != 6 {
		t.Errorf("%v", err)
	}
	if err := Unmarshal([]byte("{}"), outer{}); err == nil {
		t.Error("decoded into a value")
	}
}

func fuzzSeeds(f *testing.F) {
	file, err := os.Open("testdata/json_decode.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	for sc := bufio.NewScanner(file); sc.Scan(); {
		var c struct{ In string }
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(c.In))
	}
	names, _ := filepath.Glob("testdata/config/*")
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// FuzzParse reads anything, writes what it read, and wants the same when that is read again.
func FuzzParse(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(n.Compact())
		if err != nil {
			t.Fatalf("%q was written as %q: %v", b, n.Compact(), err)
		}
		if string(again.Compact()) != string(n.Compact()) {
			t.Fatalf("%q: %q became %q", b, n.Compact(), again.Compact())
		}
		var v struct {
			A map[string]any   `json:"offsetTable"`
			B map[int64]string `json:"brokerAddrs"`
			C []version        `json:"list"`
			D int32            `json:"perm"`
		}
		_ = Unmarshal(b, &v)
	})
}
