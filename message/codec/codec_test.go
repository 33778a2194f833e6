package codec

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
)

type goldenRow struct {
	CompressionFlag int32
	Plain           string
	CompressedHex   string
	SysFlag         int32
	Type            string
}

func goldenRows(t testing.TB) (rows []goldenRow) {
	t.Helper()
	f, err := os.Open("testdata/message_compress.jsonl")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var r goldenRow
		require.NoError(t, json.Unmarshal(sc.Bytes(), &r))
		rows = append(rows, r)
	}
	require.NoError(t, sc.Err())
	return rows
}

func TestGolden(t *testing.T) {
	for _, r := range goldenRows(t) {
		if r.CompressedHex == "" {
			_, err := Decompress([]byte("x"), r.SysFlag, 10)
			var unknown *UnknownError
			assert.Equal(t, strings.HasPrefix(r.Type, "throws"), assert.ErrorAs(nopT{}, err, &unknown), "flag 0x%x: %v", r.SysFlag, err)
			continue
		}
		raw, err := hex.DecodeString(r.CompressedHex)
		require.NoError(t, err)
		got, err := Decompress(raw, r.CompressionFlag|message.FlagCompressed, len(r.Plain))
		require.NoError(t, err)
		assert.Equal(t, r.Plain, string(got))
		_, err = Decompress(raw, r.CompressionFlag|message.FlagCompressed, len(r.Plain)-1)
		require.ErrorIs(t, err, ErrTooLarge)
		for n := range raw {
			_, err := Decompress(raw[:n], r.CompressionFlag|message.FlagCompressed, len(r.Plain))
			require.Error(t, err, "%s cut to %d of %d bytes", r.Type, n, len(raw))
		}
	}
}

type nopT struct{}

func (nopT) Errorf(string, ...any) {}

func TestRoundTrip(t *testing.T) {
	random := make([]byte, 1<<20)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	bodies := map[string][]byte{"empty": {}, "one byte": {7}, "4095": random[:4095], "4096": random[:4096], "4097": random[:4097], "1 MiB random": random,
		"1 MiB zeros": make([]byte, 1<<20), "text": bytes.Repeat([]byte("hello "), 3000)}
	for _, codec := range []int32{0, message.CodecZlib, message.CodecLZ4, message.CodecZstd} {
		for _, level := range []int{-1, 1, 5, 9, 100} {
			for name, body := range bodies {
				out, err := Compress([]byte("head"), body, codec, level)
				require.NoError(t, err)
				require.Equal(t, "head", string(out[:4]))
				got, err := Decompress(out[4:], codec|message.FlagCompressed, len(body))
				require.NoError(t, err, "%s with 0x%x at %d", name, codec, level)
				require.True(t, bytes.Equal(body, got), name)
			}
		}
	}
	_, err := Compress(nil, []byte("x"), 0x400, 5)
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
}

func TestPlainIsCopied(t *testing.T) {
	src := []byte("abc")
	got, err := Decompress(src, 0, 3)
	require.NoError(t, err)
	src[0] = 'x'
	assert.Equal(t, "abc", string(got))
	_, err = Decompress(src, 0, 2)
	require.ErrorIs(t, err, ErrTooLarge)
}

// Pooled writers and readers must not mix the bodies of concurrent callers, also after one of them failed.
func TestConcurrent(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			body := bytes.Repeat([]byte{byte(i), 1, 2}, 5000+i)
			for n := range 30 {
				codec := []int32{message.CodecZlib, message.CodecLZ4, message.CodecZstd}[n%3]
				out, err := Compress(nil, body, codec, 1)
				if !assert.NoError(t, err) {
					return
				}
				if _, err := Decompress(out[:len(out)/2], codec|message.FlagCompressed, len(body)); !assert.Error(t, err) {
					return
				}
				got, err := Decompress(out, codec|message.FlagCompressed, len(body))
				if !assert.NoError(t, err) || !assert.True(t, bytes.Equal(body, got)) {
					return
				}
			}
		}()
	}
	wg.Wait()
}

func FuzzDecompress(f *testing.F) {
	for _, r := range goldenRows(f) {
		if raw, err := hex.DecodeString(r.CompressedHex); err == nil && len(raw) > 0 {
			f.Add(raw, r.CompressionFlag)
		}
	}
	const limit = 1 << 16
	f.Fuzz(func(t *testing.T, b []byte, flag int32) {
		out, err := Decompress(b, flag|message.FlagCompressed, limit)
		if err == nil && len(out) > limit {
			t.Fatalf("%d bytes above the limit", len(out))
		}
	})
}
