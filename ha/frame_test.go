package ha

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/message"
)

// recorder writes down what a decoder finds, and encodes it again.
type recorder struct {
	auto    bool
	replies []epoch.Master
	frames  []frame
	sums    []string
	stream  []byte // encoded again
	open    []byte // body of the last frame
}

func (r *recorder) close() {
	if len(r.frames) == 0 {
		return
	}
	sum := ""
	if len(r.open) > 0 {
		h := sha256.Sum256(r.open)
		sum = hex.EncodeToString(h[:])
	}
	r.sums = append(r.sums, sum)
	r.open = r.open[:0]
}

func (r *recorder) reply(m epoch.Master) error {
	r.replies = append(r.replies, m)
	r.stream = appendReply(r.stream, m)
	return nil
}

func (r *recorder) frame(f *frame) error {
	r.close()
	r.frames = append(r.frames, *f)
	var b [autoHeadSize]byte
	if r.auto {
		r.stream = append(r.stream, f.putAuto(b[:])...)
	} else {
		r.stream = append(r.stream, f.putClassic(b[:])...)
	}
	return nil
}

func (r *recorder) body(at message.LogOffset, p []byte) error {
	last := r.frames[len(r.frames)-1]
	if at != last.At+message.LogOffset(len(r.open)) {
		return io.ErrUnexpectedEOF
	}
	r.open = append(r.open, p...)
	r.stream = append(r.stream, p...)
	return nil
}

// goldenFrame is a line of connNN.jsonl.
type goldenFrame struct {
	Dir, Type                            string
	BodySize                             int
	Offset, PhysicOffset, SlaveMaxOffset int64
	MaxOffset, EpochStartOffset          int64
	ConfirmOffset                        int64
	Epoch                                int32
	EpochEntries                         [][2]int64
	BodySha256                           string
	SlaveBrokerID                        int64 `json:"slaveBrokerId"`
	IsAsyncLearner                       int
}

func goldenConns(t testing.TB, kind string) []string {
	list, err := filepath.Glob(filepath.Join("testdata", kind, "conn*.jsonl"))
	require.NoError(t, err)
	require.NotEmpty(t, list)
	return list
}

func goldenStreams(t testing.TB, jsonl string) (lines []goldenFrame, fromMaster, fromSlave []byte) {
	base := jsonl[:len(jsonl)-len(".jsonl")]
	b, err := os.ReadFile(jsonl)
	require.NoError(t, err)
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		var f goldenFrame
		require.NoError(t, json.Unmarshal(sc.Bytes(), &f))
		lines = append(lines, f)
	}
	fromSlave, err = os.ReadFile(base + ".slave2master.bin")
	require.NoError(t, err)
	f, err := os.Open(base + ".master2slave.bin.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	fromMaster, err = io.ReadAll(z)
	require.NoError(t, err)
	return lines[1:], fromMaster, fromSlave
}

// pieces cuts a stream at random places.
func pieces(rng *rand.Rand, b []byte, fn func(p []byte) error) error {
	for len(b) > 0 {
		n := min(len(b), 1+rng.IntN(1<<rng.IntN(16)))
		if err := fn(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func TestGoldenMasterStreams(t *testing.T) {
	for _, kind := range []string{"classic", "autoswitch"} {
		for _, file := range goldenConns(t, kind) {
			t.Run(file, func(t *testing.T) {
				lines, stream, _ := goldenStreams(t, file)
				auto := kind == "autoswitch"
				rec := &recorder{auto: auto}
				d := masterDecoder{auto: auto}
				require.NoError(t, pieces(rand.New(rand.NewPCG(1, 2)), stream, func(p []byte) error { return d.decode(p, rec) }))
				rec.close()
				require.True(t, bytes.Equal(stream, rec.stream), "what is encoded again is what came")
				i := 0
				for _, l := range lines {
					if l.Dir != "master->slave" {
						continue
					}
					if l.Type == "handshakeReply" {
						require.Len(t, rec.replies, 1)
						require.Equal(t, l.Epoch, rec.replies[0].Epoch)
						require.EqualValues(t, l.Offset, rec.replies[0].End)
						require.Len(t, rec.replies[0].Epochs, len(l.EpochEntries))
						for j, e := range l.EpochEntries {
							require.Equal(t, epoch.Entry{Epoch: int32(e[0]), Start: message.LogOffset(e[1])}, rec.replies[0].Epochs[j])
						}
						continue
					}
					want := frame{message.LogOffset(l.Offset + l.PhysicOffset), l.BodySize, l.Epoch, message.LogOffset(l.EpochStartOffset), message.LogOffset(l.ConfirmOffset)}
					require.Equal(t, want, rec.frames[i])
					require.Equal(t, l.BodySha256, rec.sums[i])
					i++
				}
				require.Equal(t, i, len(rec.frames))
			})
		}
	}
}

func TestGoldenSlaveStreams(t *testing.T) {
	for _, kind := range []string{"classic", "autoswitch"} {
		for _, file := range goldenConns(t, kind) {
			t.Run(file, func(t *testing.T) {
				lines, _, stream := goldenStreams(t, file)
				auto := kind == "autoswitch"
				d := slaveDecoder{auto: auto}
				var again []byte
				var b [handshakeSize]byte
				acks := 0
				for i := range stream {
					before := d
					require.NoError(t, d.decode(stream[i:i+1]))
					if d.hands > before.hands {
						again = append(again, d.hand.put(b[:])...)
					}
					if d.acks > before.acks && auto {
						again = append(again, putAck(b[:], d.last)...)
					} else if d.acks > before.acks {
						again = append(again, putReport(b[:], d.last)...)
					}
				}
				require.Equal(t, stream, again)
				for _, l := range lines {
					switch {
					case l.Dir != "slave->master":
					case l.Type == "handshake":
						require.Equal(t, handshake{l.SlaveBrokerID, false, l.IsAsyncLearner == 1}, d.hand)
					default:
						if acks++; acks == 1 {
							require.EqualValues(t, l.MaxOffset+l.SlaveMaxOffset, d.first)
						}
					}
				}
				require.Equal(t, acks, d.acks)
			})
		}
	}
}

func TestBadFrames(t *testing.T) {
	auto := func(state, size int32, at int64) []byte {
		b := make([]byte, autoHeadSize)
		binary.BigEndian.PutUint32(b, uint32(state))
		binary.BigEndian.PutUint32(b[4:], uint32(size))
		binary.BigEndian.PutUint64(b[8:], uint64(at))
		return b
	}
	reply := func(size int32, entries ...epoch.Entry) []byte {
		b := appendReply(nil, epoch.Master{Epochs: entries, End: 5, Epoch: 1})
		binary.BigEndian.PutUint32(b[4:], uint32(size))
		return b
	}
	ok := reply(0)
	for name, b := range map[string][]byte{
		"negative size": append(ok[:len(ok):len(ok)], auto(2, -1, 0)...), "huge": append(ok[:len(ok):len(ok)], auto(2, 4<<20, 0)...),
		"wrong state": append(ok[:len(ok):len(ok)], auto(1, 0, 0)...), "negative offset": append(ok[:len(ok):len(ok)], auto(2, 5, -1)...),
		"reply in the wrong state": auto(2, 0, 0), "reply with half an entry": reply(13), "too many entries": reply(12012),
		"entries out of order": reply(24, epoch.Entry{Epoch: 2, Start: 0}, epoch.Entry{Epoch: 1, Start: 9}),
	} {
		d := masterDecoder{auto: true}
		require.ErrorIs(t, d.decode(b, &recorder{auto: true}), ErrProtocol, name)
	}
	d := masterDecoder{}
	require.ErrorIs(t, d.decode((&frame{At: 4, Size: -5}).putClassic(make([]byte, 12)), &recorder{}), ErrProtocol)
	var b [handshakeSize]byte
	for name, stream := range map[string][]byte{
		"http": []byte("GET / HTTP/1.1\r\n"), "ack first": putAck(b[:], 5), "negative ack": append(handshake{ID: 2}.put(make([]byte, 16)), putAck(b[:], -5)...),
		"no id": handshake{ID: 0}.put(make([]byte, 16)), "another id": append(handshake{ID: 2}.put(make([]byte, 16)), handshake{ID: 3}.put(make([]byte, 16))...),
	} {
		d := slaveDecoder{auto: true}
		require.ErrorIs(t, d.decode(stream), ErrProtocol, name)
	}
}

func FuzzMasterDecoder(f *testing.F) {
	for _, kind := range []string{"classic", "autoswitch"} {
		for _, file := range goldenConns(f, kind) {
			_, stream, _ := goldenStreams(f, file)
			f.Add(kind == "autoswitch", stream[:min(len(stream), 4096)], uint64(1))
		}
	}
	f.Fuzz(func(t *testing.T, auto bool, stream []byte, seed uint64) {
		whole, parts := &recorder{auto: auto}, &recorder{auto: auto}
		d, e := masterDecoder{auto: auto}, masterDecoder{auto: auto}
		err := d.decode(stream, whole)
		err2 := pieces(rand.New(rand.NewPCG(seed, 1)), stream, func(p []byte) error { return e.decode(p, parts) })
		require.Equal(t, err == nil, err2 == nil)
		require.Equal(t, whole.frames, parts.frames)
		require.Equal(t, whole.stream, parts.stream)
	})
}

func FuzzSlaveDecoder(f *testing.F) {
	for _, kind := range []string{"classic", "autoswitch"} {
		for _, file := range goldenConns(f, kind) {
			_, _, stream := goldenStreams(f, file)
			f.Add(kind == "autoswitch", stream, uint64(1))
		}
	}
	f.Fuzz(func(t *testing.T, auto bool, stream []byte, seed uint64) {
		d, e := slaveDecoder{auto: auto}, slaveDecoder{auto: auto}
		err := d.decode(stream)
		err2 := pieces(rand.New(rand.NewPCG(seed, 1)), stream, func(p []byte) error { return e.decode(p) })
		require.Equal(t, err == nil, err2 == nil)
		if err == nil {
			require.Equal(t, d, e)
		}
	})
}
