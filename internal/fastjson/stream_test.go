package fastjson

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type hostile struct {
	Name  string           `json:"name"`
	List  []hostileItem    `json:"list"`
	Table map[string]int32 `json:"table"`
	Own   *Node            `json:"own"`
	Bytes []byte           `json:"bytes"`
}

type hostileItem struct {
	Topic string `json:"topic"`
	ID    int32  `json:"id"`
}

func TestUnmarshalKeepsOnlyTheValue(t *testing.T) {
	const n = 1 << 20
	many := strings.Repeat("1,", n) + "1"
	for name, c := range map[string]struct{ text, err string }{
		"list instead of an object": {"[" + many + "]", `json: "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1..." is not an object`},
		"unknown list":              {`{"x":[` + many + `]}`, ""},
		"unknown objects":           {`{"x":[` + strings.Repeat("{a:{}},", n/4) + `]}`, ""},
		"list for a table":          {`{"table":[` + many + `]}`, `is not an object`},
		"object for a list":         {`{"list":{"a":[` + many + `]}}`, `is not an array`},
		"repeated key":              {`{` + strings.Repeat(`"name":"a",`, n/8) + `}`, ""},
		"list of nothing":           {`{"list":[` + strings.Repeat(",", n) + `]}`, "unexpected"},
		"list for a text":           {`{"name":[` + strings.Repeat("1,", 2*n) + `]}`, "too many values"},
		"kept tree":                 {`{"own":[` + many + `]}`, "too many values"},
		"kept trees":                {`{` + strings.Repeat(`"own":[1,1,1,1,1,1,1],`, n/8) + `}`, "too many values"},
		"deep":                      {strings.Repeat(`{"x":`, n), "nested too deeply"},
		"deep list":                 {strings.Repeat(`[`, n), "nested too deeply"},
		"deep key":                  {strings.Repeat(`{`, n), "nested too deeply"},
		"empty objects":             {`{"list":[` + strings.Repeat("{},", n) + `]}`, "too many values"},
		"cut off":                   {`{"x":[1,2`, "array is not closed"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var v hostile
			err := Unmarshal([]byte(c.text), &v)
			runtime.GC()
			runtime.ReadMemStats(&after)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
				require.Less(t, len(err.Error()), 200)
			}
			require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(64<<20), "heap that the value holds")
			runtime.KeepAlive(v)
		})
	}
}

// TestUnmarshalReadsAsDecodeDoes compares reading as it comes with decoding a whole tree.
func TestUnmarshalReadsAsDecodeDoes(t *testing.T) {
	for _, text := range []string{`{}`, `null`, ` [] `, `5`, `"x"`, `{"name":null,"list":null,"table":null,"own":null}`, `{"NAME":5}`,
		`{"name":{"a":1},"list":[{"topic":1,"id":"2"},null,{}],"table":{1:2,"3":"4",{a:1}:5},"own":{"x":[1,2]},"bytes":"AQI="}`,
		`{"list":[{"id":1}],"list":[{"id":2},{"id":3}]}`, `{"table":{"a":1},"table":{"b":2}}`, `{"list":5}`, `{"list":{"a":1}}`, `{"table":[]}`,
		`{"bytes":[1,2,3]}`, `{"bytes":5}`, `{"list":[1]}`, `{"table":{"a":"x"}}`, `{"x":{"y":[1,{"z":'q'}]},"name":"n"}`, `{"name":"a"`, `{"list":[{}`,
		`{"name" "a"}`, `{"list":[1 2]}`, `{"own":undefined,"name":NaN}`, `{"list":nope}`, `{"name":"a"} x`, `/*c*/{"name"/*d*/:"a"//e` + "\n}"} {
		var streamed, whole hostile
		got := Unmarshal([]byte(text), &streamed)
		n, want := Parse([]byte(text))
		if want == nil {
			want = n.Decode(&whole)
		}
		require.Equal(t, want == nil, got == nil, "%s: %v, %v", text, got, want)
		if want == nil {
			require.Equal(t, whole, streamed, text)
		}
	}
}

func TestLargeTextsWait(t *testing.T) {
	text := append([]byte(`{"name":"`), bytes.Repeat([]byte("x"), 1<<20)...)
	text = append(text, `"}`...)
	done := make(chan error)
	for range 32 {
		go func() { var v hostile; done <- Unmarshal(text, &v) }()
	}
	for range 32 {
		require.NoError(t, <-done)
	}
	require.True(t, inDecoding.TryAcquire(bigTexts), "every reader has given its share back")
	inDecoding.Release(bigTexts)
}
