package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// jsonFrame is a frame without its length word.
func jsonFrame(header, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(header)))
	return append(append(b, header...), body...)
}

func TestDecodeJSON(t *testing.T) {
	tests := []struct {
		name, header string
		want         Header // Remark as text in remark
		remark       string
		ext          map[string]string
		bad          bool
	}{
		{name: "numbers and booleans as ext values", header: `{"code":10,"extFields":{"a":1,"b":true,"c":-1.5e3,"d":false},"opaque":3}`,
			want: Header{Code: 10, Opaque: 3}, ext: map[string]string{"a": "1", "b": "true", "c": "-1.5e3", "d": "false"}},
		{name: "null is absent", header: `{"code":1,"remark":null,"extFields":{"a":null,"b":"x"},"language":null,"version":null}`,
			want: Header{Code: 1}, ext: map[string]string{"b": "x"}},
		{name: "null ext", header: `{"code":1,"extFields":null}`, want: Header{Code: 1}},
		{name: "objects and arrays as text", header: `{"extFields":{"a":{ "x" : [1, 2 ,{"y":"a b\"}"}] },"b":[ ]}}`,
			ext: map[string]string{"a": `{"x":[1,2,{"y":"a b\"}"}]}`, "b": "[]"}},
		{name: "unknown keys are skipped", header: `{"x":{"code":9},"y":["}"],"code":5,"z":"\""}`, want: Header{Code: 5}},
		{name: "space and line ends", header: " {\n\t\"code\" : 7 ,\r\n \"extFields\" : { \"a\" : \"b\" } }\n", want: Header{Code: 7}, ext: map[string]string{"a": "b"}},
		{name: "escapes", header: `{"extFields":{"a\tb":"\u0001\u0002x\"\\\/\b\f\n\r\té世\ud83d\ude00\x41\v\0"},"remark":"\u4e16"}`,
			remark: "世", ext: map[string]string{"a\tb": "\x01\x02x\"\\/\b\f\n\r\té世😀A\v\x00"}},
		{name: "lone surrogates", header: `{"extFields":{"a":"\ud83dx","b":"\ude00\ud83d\u0041"}}`, ext: map[string]string{"a": "\uFFFDx", "b": "\uFFFD\uFFFDA"}},
		{name: "raw control characters", header: "{\"extFields\":{\"a\":\"\x01\x02\n\"}}", ext: map[string]string{"a": "\x01\x02\n"}},
		{name: "last duplicate counts", header: `{"code":1,"code":2,"extFields":{"a":"1","a":"2"}}`, want: Header{Code: 2}, ext: map[string]string{"a": "2"}},
		{name: "language by name", header: `{"language":"GO"}`, want: Header{Language: LangGo}},
		{name: "language with an unknown name", header: `{"language":"FOO"}`, want: Header{Language: LangOther}},
		{name: "language by id", header: `{"language":12}`, want: Header{Language: LangRust}},
		{name: "language by unknown id", header: `{"language":99}`, want: Header{Language: LangOther}},
		{name: "quoted numbers", header: `{"code":"105","version":"-1","opaque":6.7}`, want: Header{Code: 105, Version: -1, Opaque: 6}},
		{name: "ends of the range", header: `{"code":2147483647,"opaque":-2147483648}`, want: Header{Code: math.MaxInt32, Opaque: math.MinInt32}},
		{name: "version out of every list", header: `{"version":999999}`, want: Header{Version: 999999}},
		{name: "empty object", header: `{}`},
		{name: "empty ext", header: `{"extFields":{}}`},
		{name: "empty header", header: ``, bad: true},
		{name: "array", header: `[]`, bad: true},
		{name: "null", header: `null`, bad: true},
		{name: "number out of range", header: `{"code":2147483648}`, bad: true},
		{name: "long number", header: `{"code":111111111111111111111111}`, bad: true},
		{name: "number is a word", header: `{"code":x}`, bad: true},
		{name: "text after the object", header: `{"code":1}x`, bad: true},
		{name: "no end", header: `{"code":1`, bad: true},
		{name: "no value", header: `{"code":`, bad: true},
		{name: "no value in ext", header: `{"extFields":{"a":`, bad: true},
		{name: "string without end", header: `{"remark":"abc`, bad: true},
		{name: "escape without end", header: `{"remark":"abc\`, bad: true},
		{name: "unicode escape without end", header: `{"remark":"\u12`, bad: true},
		{name: "bad unicode escape", header: `{"remark":"\u12x4"}`, bad: true},
		{name: "bad escape", header: `{"remark":"\q"}`, bad: true},
		{name: "ext is a text", header: `{"extFields":"a"}`, bad: true},
		{name: "brackets of the wrong kind", header: `{"extFields":{"a":[}]}}`, bad: true},
		{name: "nested too deeply", header: `{"x":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`, bad: true},
		{name: "bare comma", header: `{,}`, bad: true},
		{name: "bare key", header: `{code:1}`, bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h Header
			body, err := Decode(jsonFrame(tt.header, "body"), &h)
			if tt.bad {
				if err == nil {
					t.Fatal("no error")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			w := tt.want
			if h.Code != w.Code || h.Opaque != w.Opaque || h.Flag != w.Flag || h.Version != w.Version || h.Language != w.Language ||
				string(h.Remark) != tt.remark || string(body) != "body" {
				t.Fatalf("got %+v body %q", h, body)
			}
			got := h.Command(nil).Ext
			if len(got) != len(tt.ext) {
				t.Fatalf("ext %q", got)
			}
			for k, v := range tt.ext {
				if got[k] != v {
					t.Fatalf("ext %s is %q, want %q", k, got[k], v)
				}
				if b, ok := h.Get(k); !ok || string(b) != v {
					t.Fatalf("Get %s is %q", k, b)
				}
			}
		})
	}
}

// malformed are the frames of the project's case SE-15, with their length words.
var malformed = map[string]struct {
	hex string
	ok  bool // decodes
}{
	"M05 header longer than the frame":   {"00000008 00000064 7b7d7b7d", false},
	"M06 serialization type 5":           {"00000006 05000002 7b7d", false},
	"M07 empty object":                   {"00000006 00000002 7b7d", true},
	"M08 array":                          {"00000006 00000002 5b5d", false},
	"M09 null":                           {"00000008 00000004 6e756c6c", false},
	"M10 remark length 2^31-1":           {"00000019 01000015 0069 00 013d 00000007 00000000 7fffffff 00000000", false},
	"M11 remark length -2":               {"00000019 01000015 0069 00 013d 00000007 00000000 fffffffe 00000000", false},
	"M12 ext length beyond the header":   {"00000019 01000015 0069 00 013d 00000007 00000000 00000000 00ffffff", false},
	"M13 key length -1":                  {"00000025 01000021 0069 00 013d 00000007 00000000 00000000 0000000c ffff 746f706963 00000001 54", false},
	"M14 value length huge":              {"00000025 01000021 0069 00 013d 00000007 00000000 00000000 0000000c 0005 746f706963 7ffffff0 54", false},
	"M15 header of 4 bytes":              {"00000008 01000004 00690001", false},
	"M16 version -1":                     {"00000025 01000021 0069 00 ffff 00000007 00000000 00000000 0000000c 0005 746f706963 00000001 54", true},
	"M17 language 200":                   {"00000025 01000021 0069 c8 013d 00000007 00000000 00000000 0000000c 0005 746f706963 00000001 54", true},
	"binary with a key that has no end":  {"0000001a 01000016 0069 00 013d 00000007 00000000 00000000 00000001 00", false},
	"binary with an empty key and value": {"0000001f 0100001b 0069 00 013d 00000007 00000000 00000000 00000006 0000 00000000", true},
	"shorter than a header length":       {"00000002 0000", false},
}

func TestMalformed(t *testing.T) {
	for name, tt := range malformed {
		t.Run(name, func(t *testing.T) {
			b, err := hex.DecodeString(strings.ReplaceAll(tt.hex, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			var h Header
			if _, err = Decode(b[4:], &h); (err == nil) != tt.ok {
				t.Fatal(err)
			}
		})
	}
}

func TestVectors(t *testing.T) {
	var e Ext
	e.Add("topic", "T1")
	want := `{"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"JAVA","opaque":0,"serializeTypeCurrentRPC":"JSON","version":479}`
	if got := AppendFrame(nil, JSON, 105, 0, 0, "", &e, 0); string(got) != "\x00\x00\x00\x80\x00\x00\x00\x7C"+want {
		t.Fatalf("%q", got)
	}
	e.Reset()
	e.AddInt("offset", 12)
	got := AppendFrame(nil, Binary, 0, FlagResponse, 7, "", &e, 0)
	if hex.EncodeToString(got) != "000000270100002300000001df0000000700000001000000000000000e00066f66667365740000000"+"23132" {
		t.Fatalf("%x", got)
	}
	if got := AppendFrame(nil, Binary, ReqPopMessage, 0, 1, "", nil, 5); got[4] != byte(JSON) || binary.BigEndian.Uint32(got) != uint32(len(got)-4+5) {
		t.Fatalf("a code of more than 16 bits is not JSON: %q", got)
	}
	e.Reset()
	e.Present()
	if got := AppendFrame(nil, JSON, 17, 1, 0, `a"b\`+"\n\x01\u2028\x7f", &e, 0); !bytes.Contains(got, []byte(`"extFields":{},`)) ||
		!bytes.Contains(got, []byte(`"remark":"a\"b\\\n\u0001\u2028\u007F"`)) {
		t.Fatalf("%q", got)
	}
}

func TestParseInt(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "-1": -1, "+5": 5, "9223372036854775807": math.MaxInt64,
		"-9223372036854775808": math.MinInt64, "000000000000000000000000001": 1} {
		if v, ok := ParseInt([]byte(s)); !ok || v != want {
			t.Errorf("%q is %d %v", s, v, ok)
		}
	}
	for _, s := range []string{"", "-", "+", " 1", "1 ", "1.0", "0x1", "--1", "9223372036854775808", "-9223372036854775809",
		"+-111111111111111111111", "1_000", "1_0000000000000000000", "１"} {
		if v, ok := ParseInt([]byte(s)); ok {
			t.Errorf("%q is %d", s, v)
		}
	}
}

func TestTypedFields(t *testing.T) {
	var h Header
	if _, err := Decode(jsonFrame(`{"extFields":{"n":"12","big":"4294967296","bad":"x","yes":"TRUE","no":"1"}}`, ""), &h); err != nil {
		t.Fatal(err)
	}
	if v, ok, err := h.Int32("n"); v != 12 || !ok || err != nil {
		t.Error(v, ok, err)
	}
	if _, ok, err := h.Int32("big"); !ok || err == nil {
		t.Error("too large for 32 bits")
	}
	if v, ok, err := h.Int64("big"); v != 1<<32 || !ok || err != nil {
		t.Error(v, ok, err)
	}
	if _, ok, err := h.Int64("bad"); !ok || err == nil || !strings.Contains(err.Error(), "bad") {
		t.Error(err)
	}
	if _, ok, err := h.Int64("none"); ok || err != nil {
		t.Error(err)
	}
	yes, _, _ := h.Bool("yes")
	no, _, _ := h.Bool("no")
	if _, ok, _ := h.Bool("none"); !yes || no || ok {
		t.Error("booleans")
	}
}

func TestClone(t *testing.T) {
	frame := jsonFrame(`{"code":5,"remark":"r","extFields":{"a":"\u0041"}}`, "")
	var h, c Header
	if _, err := Decode(frame, &h); err != nil {
		t.Fatal(err)
	}
	h.CloneInto(&c, nil)
	clear(frame)
	if v, _ := c.Get("a"); string(v) != "A" || string(c.Remark) != "r" || c.Code != 5 {
		t.Fatalf("%q %q", v, c.Remark)
	}
}

func TestTooManyFields(t *testing.T) {
	for n, ok := range map[int]bool{MaxFields: true, MaxFields + 1: false} {
		var e Ext
		for i := range n {
			e.Add("f"+strconv.Itoa(i), "")
		}
		for _, form := range []Form{JSON, Binary} {
			var h Header
			if _, err := Decode(AppendFrame(nil, form, 1, 0, 0, "", &e, 0)[4:], &h); (err == nil) != ok {
				t.Errorf("%d fields in form %d: %v", n, form, err)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Command{Code: rapid.Int32().Draw(t, "code"), Opaque: rapid.Int32().Draw(t, "opaque"), Flag: rapid.Int32Range(0, 3).Draw(t, "flag"),
			Version: rapid.Int32Range(math.MinInt16, math.MaxInt16).Draw(t, "version"), Language: byte(rapid.IntRange(0, 13).Draw(t, "language")),
			Form: Form(rapid.IntRange(0, 1).Draw(t, "form")), Remark: rapid.String().Draw(t, "remark"),
			Ext: rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "ext"), Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body")}
		got, err := DecodeCommand(c.Append([]byte("before"))[10:])
		if err != nil {
			t.Fatal(err)
		}
		if got.Code != c.Code || got.Opaque != c.Opaque || got.Flag != c.Flag || got.Version != c.Version || got.Language != c.Language ||
			got.Remark != c.Remark || !bytes.Equal(got.Body, c.Body) || len(got.Ext) != len(c.Ext) || got.Form != FrameForm(c.Form, c.Code) {
			t.Fatalf("got %+v\nwant %+v", got, c)
		}
		for k, v := range c.Ext {
			if got.Ext[k] != v {
				t.Fatalf("ext %q is %q, want %q", k, got.Ext[k], v)
			}
		}
	})
}

func seedFrames(f *testing.F) {
	seen := map[Code]bool{}
	eachGolden(f, func(_ string, _ int, g *goldenFrame, frame []byte) {
		if !seen[g.Code] && len(frame) < 2048 {
			seen[g.Code] = true
			f.Add(frame[4:])
		}
	})
	for _, m := range malformed {
		b, _ := hex.DecodeString(strings.ReplaceAll(m.hex, " ", ""))
		f.Add(b[4:])
	}
}

func FuzzDecode(f *testing.F) {
	seedFrames(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		var h Header
		size := len(frame)
		body, err := Decode(frame, &h)
		if err != nil {
			return
		}
		if len(body)+h.HeaderSize()+4 != size {
			t.Fatalf("body %d, header %d of %d bytes", len(body), h.HeaderSize(), size)
		}
		h.Each(func(name, value []byte) bool {
			if _, ok := h.Get(string(name)); !ok {
				t.Fatalf("field %q not found", name)
			}
			return true
		})
	})
}

func FuzzDecodeCommand(f *testing.F) {
	seedFrames(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		c, err := DecodeCommand(frame)
		if err != nil {
			return
		}
		again, err := DecodeCommand(c.Append(nil)[4:])
		if err != nil {
			t.Fatal(err)
		}
		if again.Code != c.Code || len(again.Ext) != len(c.Ext) || again.Remark != c.Remark || !bytes.Equal(again.Body, c.Body) {
			t.Fatalf("got %+v\nwant %+v", again, c)
		}
	})
}

// sendHeader is the header of a usual send, about 340 bytes in JSON.
func sendHeader(form Form) []byte {
	var e Ext
	for _, f := range [][2]string{{"a", "please_rename_unique_group_name"}, {"b", "BenchmarkTest"}, {"c", "TBW102"}, {"d", "4"}, {"e", "2"},
		{"f", "0"}, {"g", "1700000000000"}, {"h", "0"}, {"i", "KEYS\x01k-123456\x02UNIQ_KEY\x017F0000013C2C18B4AAC2000000010000\x02WAIT\x01true\x02TAGS\x01TagA\x02"},
		{"j", "0"}, {"k", "false"}, {"m", "false"}, {"n", "broker-a"}} {
		e.Add(f[0], f[1])
	}
	return AppendFrame(nil, form, ReqSendMessageV2, 0, 77, "", &e, 0)[4:]
}

func TestDecodeAllocatesNothing(t *testing.T) {
	for name, form := range map[string]Form{"json": JSON, "binary": Binary} {
		frame := sendHeader(form)
		work := make([]byte, len(frame))
		var h Header
		var failed error
		run := func() {
			copy(work, frame)
			if _, err := Decode(work, &h); err != nil {
				failed = err
			}
			h.Get("i")
			h.Int64("g")
		}
		run()
		if n := testing.AllocsPerRun(200, run); n != 0 || failed != nil {
			t.Errorf("%s: %v allocations, %v", name, n, failed)
		}
	}
}

func TestAppendFrameAllocatesNothing(t *testing.T) {
	var e Ext
	var dst []byte
	id := []byte("7F00000100002A9F0000000000000000")
	run := func() {
		e.Reset()
		e.AddBytes("msgId", id)
		e.AddInt("queueId", 3)
		e.AddInt("queueOffset", 123456)
		e.Add("MSG_REGION", "DefaultRegion")
		e.AddBool("TRACE_ON", true)
		dst = AppendFrame(dst[:0], JSON, 0, 1, 9, "", &e, 0)
		dst = AppendFrame(dst, Binary, 0, 1, 9, "", &e, 0)
	}
	run()
	if n := testing.AllocsPerRun(200, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func benchmarkDecode(b *testing.B, form Form) {
	frame := sendHeader(form)
	work := make([]byte, len(frame))
	var h Header
	b.ReportAllocs()
	b.SetBytes(int64(len(frame)))
	for b.Loop() {
		copy(work, frame)
		if _, err := Decode(work, &h); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeJSON(b *testing.B)   { benchmarkDecode(b, JSON) }
func BenchmarkDecodeBinary(b *testing.B) { benchmarkDecode(b, Binary) }

func BenchmarkAppendFrame(b *testing.B) {
	var e Ext
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		e.Reset()
		e.Add("msgId", "7F00000100002A9F0000000000000000")
		e.AddInt("queueId", 3)
		e.AddInt("queueOffset", 123456)
		dst = AppendFrame(dst[:0], JSON, 0, 1, 9, "", &e, 0)
	}
}
