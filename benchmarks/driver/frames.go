package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

const (
	topic      = "EpochBench"
	opaqueBase = 1_000_000_000 // ten digits, so that the number can be replaced in place
)

// template is a request frame whose opaque, and offset of a pull, are replaced in place.
type template struct {
	frame  []byte
	opaque int // position of ten digits
	offset int // the same; 0: none
}

func newTemplate(header string, body []byte) *template {
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	frame = append(append(frame, header...), body...)
	t := &template{frame: frame, opaque: bytes.Index(frame, []byte(`"opaque":`)) + len(`"opaque":`)}
	if i := bytes.Index(frame, []byte(`"queueOffset":"`)); i > 0 {
		t.offset = i + len(`"queueOffset":"`)
	}
	return t
}

func (t *template) setOpaque(n int) { digits(t.frame[t.opaque:], opaqueBase+n%opaqueBase) }
func (t *template) setOffset(n int) { digits(t.frame[t.offset:], n) }

func digits(b []byte, n int) {
	for i := 9; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

const tail = `},"flag":0,"language":"JAVA","opaque":1000000000,"serializeTypeCurrentRPC":"JSON","version":479}`

// properties are what the Java producer sends: keys, tags, a unique id and two of the user's own.
const (
	jsonProps = `UNIQ_KEY\u0001C000020246E44E0E2F2A01F87B9F0000\u0002KEYS\u0001key0\u0002WAIT\u0001true\u0002TAGS\u0001TagA\u0002a\u00011\u0002b\u00012\u0002`
	rawProps  = "UNIQ_KEY\x01C000020246E44E0E2F2A01F87B9F0000\x02KEYS\x01key0\x02WAIT\x01true\x02TAGS\x01TagA\x02"
)

func sendFrame(code, queue int, props string, batch bool, body []byte) *template {
	return newTemplate(`{"code":`+strconv.Itoa(code)+`,"extFields":{"a":"BenchGroup","b":"`+topic+`","c":"TBW102","d":"4","e":"`+strconv.Itoa(queue)+
		`","f":"0","g":"1700000000000","h":"0","i":"`+props+`","j":"0","k":"false","m":"`+strconv.FormatBool(batch)+`","n":"bench"`+tail, body)
}

func single(queue, size int) *template { return sendFrame(310, queue, jsonProps, false, body(size)) }

func batchOf(queue, size, n int) *template {
	var b []byte
	for range n {
		item := 4 + 4 + 4 + 4 + 4 + size + 2 + len(rawProps)
		b = binary.BigEndian.AppendUint32(b, uint32(item))
		b = append(b, make([]byte, 12)...)
		b = binary.BigEndian.AppendUint32(b, uint32(size))
		b = append(b, body(size)...)
		b = binary.BigEndian.AppendUint16(b, uint16(len(rawProps)))
		b = append(b, rawProps...)
	}
	return sendFrame(320, queue, `UNIQ_KEY\u0001C000020246E44E0E2F2A01F87B9F0001\u0002WAIT\u0001true\u0002`, true, b)
}

func pullFrame(queue, n int) *template {
	return newTemplate(`{"code":11,"extFields":{"queueId":"`+strconv.Itoa(queue)+`","maxMsgBytes":"1048576","maxMsgNums":"`+strconv.Itoa(n)+
		`","sysFlag":"4","suspendTimeoutMillis":"0","commitOffset":"0","bname":"bench","topic":"`+topic+
		`","queueOffset":"0000000000","expressionType":"TAG","subscription":"*","subVersion":"0","consumerGroup":"BenchConsumer"`+tail, nil)
}

func body(size int) []byte { return bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size] }

// reply is a response frame, as views of the read buffer.
type reply struct{ header, body []byte }

// nextReply cuts the first frame off b; n is its length, 0 if it is not whole yet.
func nextReply(b []byte) (r reply, n int, err error) {
	if len(b) < 8 {
		return r, 0, nil
	}
	n = int(binary.BigEndian.Uint32(b)) + 4
	head := int(binary.BigEndian.Uint32(b[4:]) & 0xFFFFFF)
	if n < 8+head || n > 64<<20 {
		return r, 0, fmt.Errorf("answer of %d bytes with a header of %d", n, head)
	}
	if len(b) < n {
		return r, 0, nil
	}
	return reply{b[8 : 8+head], b[8+head : n]}, n, nil
}

// ok reports code 0.
func (r reply) ok() bool { return r.code() == 0 }

func (r reply) code() int {
	i := bytes.Index(r.header, []byte(`"code":`))
	if i < 0 {
		return -1
	}
	code := 0
	for _, c := range r.header[i+len(`"code":`):] {
		if c < '0' || c > '9' {
			break
		}
		code = code*10 + int(c-'0')
	}
	return code
}

// records counts the messages of a pull's body.
func (r reply) records() int {
	n := 0
	for b := r.body; len(b) >= 4; n++ {
		size := int(binary.BigEndian.Uint32(b))
		if size < 4 || size > len(b) {
			return -1
		}
		b = b[size:]
	}
	return n
}
