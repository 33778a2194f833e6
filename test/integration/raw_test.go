package integration

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// answer is one response frame.
type answer struct {
	Code   int32             `json:"code"`
	Opaque int32             `json:"opaque"`
	Remark string            `json:"remark"`
	Ext    map[string]string `json:"extFields"`
	Flag   int               `json:"flag"`
	Body   []byte            `json:"-"`
}

func (a *answer) int(name string) int64 {
	n, err := strconv.ParseInt(a.Ext[name], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// rawConn is a client connection with pipelined requests.
type rawConn struct {
	c  net.Conn
	mu sync.Mutex // guards the fields below and writes

	opaque  int32
	pending map[int32]func(*answer, error)
	err     error
}

func dialRaw(addr string) (*rawConn, error) {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return nil, err
	}
	r := &rawConn{c: c, pending: map[int32]func(*answer, error){}}
	go r.read()
	return r, nil
}

func (r *rawConn) Close() { r.c.Close() }

// send writes one request; done is called once, from the reading goroutine or, on a write error, from here.
func (r *rawConn) send(code int, ext map[string]string, body []byte, done func(*answer, error)) {
	r.mu.Lock()
	if r.err != nil {
		err := r.err
		r.mu.Unlock()
		done(nil, err)
		return
	}
	r.opaque++
	id := r.opaque
	r.pending[id] = done
	err := writeRequest(r.c, code, 0, id, ext, body)
	if err != nil {
		delete(r.pending, id)
	}
	r.mu.Unlock()
	if err != nil {
		done(nil, err)
	}
}

// oneway writes one request that is not answered.
func (r *rawConn) oneway(code int, ext map[string]string, body []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opaque++
	return writeRequest(r.c, code, 2, r.opaque, ext, body)
}

func writeRequest(w io.Writer, code, flag int, opaque int32, ext map[string]string, body []byte) error {
	text, err := json.Marshal(map[string]any{"code": code, "language": "JAVA", "version": 479, "flag": flag, "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "extFields": ext})
	if err != nil {
		return err
	}
	frame := make([]byte, 8, 8+len(text)+len(body))
	binary.BigEndian.PutUint32(frame, uint32(4+len(text)+len(body)))
	binary.BigEndian.PutUint32(frame[4:], uint32(len(text)))
	_, err = w.Write(append(append(frame, text...), body...))
	return err
}

// call sends and waits at most the given time.
func (r *rawConn) call(code int, ext map[string]string, body []byte, limit time.Duration) (*answer, error) {
	type result struct {
		a   *answer
		err error
	}
	ch := make(chan result, 1)
	r.send(code, ext, body, func(a *answer, err error) { ch <- result{a, err} })
	select {
	case res := <-ch:
		return res.a, res.err
	case <-time.After(limit):
		return nil, fmt.Errorf("no answer to request %d within %v", code, limit)
	}
}

func (r *rawConn) read() {
	err := r.readAll()
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	r.mu.Lock()
	r.err = err
	waiting := r.pending
	r.pending = map[int32]func(*answer, error){}
	r.mu.Unlock()
	for _, done := range waiting {
		done(nil, err)
	}
}

func (r *rawConn) readAll() error {
	for {
		a, err := readFrame(r.c)
		if err != nil {
			return err
		}
		if a.Flag&1 == 0 {
			continue // a request of the broker, such as a notification
		}
		r.mu.Lock()
		done := r.pending[a.Opaque]
		delete(r.pending, a.Opaque)
		r.mu.Unlock()
		if done != nil {
			done(a, nil)
		}
	}
}

func readFrame(c io.Reader) (*answer, error) {
	var word [8]byte
	if _, err := io.ReadFull(c, word[:]); err != nil {
		return nil, err
	}
	total, head := int(binary.BigEndian.Uint32(word[:])), int(binary.BigEndian.Uint32(word[4:])&0xFFFFFF)
	if total < 4+head || total > 64<<20 {
		return nil, fmt.Errorf("frame of %d bytes with a header of %d", total, head)
	}
	rest := make([]byte, total-4)
	if _, err := io.ReadFull(c, rest); err != nil {
		return nil, err
	}
	a := &answer{}
	if err := json.Unmarshal(rest[:head], a); err != nil {
		return nil, fmt.Errorf("header %q: %w", rest[:head], err)
	}
	a.Body = rest[head:]
	return a, nil
}

// sendExt is the header of SEND_MESSAGE_V2.
func sendExt(topic string, queue int, properties string) map[string]string {
	return map[string]string{"a": "RawGroup", "b": topic, "c": "TBW102", "d": "8", "e": strconv.Itoa(queue), "f": "0",
		"g": strconv.FormatInt(time.Now().UnixMilli(), 10), "h": "0", "i": properties, "j": "0", "k": "false", "m": "false"}
}

// stored is one record of a pull answer.
type stored struct {
	queue       int32
	queueOffset int64
	logOffset   int64
	bodyCRC     uint32
	body        []byte
	properties  string
}

// records splits the body of a pull answer. It follows spec order: docs/formats/record.md.
func records(b []byte) ([]stored, error) {
	var all []stored
	for len(b) > 0 {
		if len(b) < 91 {
			return all, fmt.Errorf("%d bytes left", len(b))
		}
		size := int(binary.BigEndian.Uint32(b))
		if size < 91 || size > len(b) {
			return all, fmt.Errorf("record of %d bytes in %d", size, len(b))
		}
		rec := b[:size]
		s := stored{queue: int32(binary.BigEndian.Uint32(rec[12:])), queueOffset: int64(binary.BigEndian.Uint64(rec[20:])), logOffset: int64(binary.BigEndian.Uint64(rec[28:])),
			bodyCRC: binary.BigEndian.Uint32(rec[8:])}
		n := int(binary.BigEndian.Uint32(rec[84:]))
		if 88+n+1 > size {
			return all, fmt.Errorf("body of %d bytes in a record of %d", n, size)
		}
		s.body = rec[88 : 88+n]
		at := 88 + n + 1 + int(rec[88+n])
		if at+2 > size {
			return all, errors.New("topic runs out of the record")
		}
		s.properties = string(rec[at+2:])
		all = append(all, s)
		b = b[size:]
	}
	return all, nil
}
