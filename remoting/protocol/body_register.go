package protocol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zlib"

	"github.com/epochmq/epochmq/internal/fastjson"
)

// TopicConfig describes a topic on one broker.
type TopicConfig struct {
	Attributes      map[string]string `json:"attributes"`
	Order           bool              `json:"order"`
	Perm            int32             `json:"perm"`
	ReadQueueNums   int32             `json:"readQueueNums"`
	TopicFilterType string            `json:"topicFilterType"`
	TopicName       string            `json:"topicName"`
	TopicSysFlag    int32             `json:"topicSysFlag"`
	WriteQueueNums  int32             `json:"writeQueueNums"`
}

// UnmarshalFastJSON reads a topic, with RocketMQ's defaults for what is absent. The filter type may be a name or its number.
func (c *TopicConfig) UnmarshalFastJSON(n *fastjson.Node) error {
	type plain TopicConfig
	p := plain{Attributes: map[string]string{}, Perm: 6, ReadQueueNums: 16, WriteQueueNums: 16, TopicFilterType: "SINGLE_TAG"}
	if err := n.Decode(&p); err != nil {
		return err
	}
	switch p.TopicFilterType {
	case "0":
		p.TopicFilterType = "SINGLE_TAG"
	case "1":
		p.TopicFilterType = "MULTI_TAG"
	}
	*c = TopicConfig(p)
	return nil
}

// TopicConfigWrapper is a table of topics with its version, and the mappings of static topics.
type TopicConfigWrapper struct {
	DataVersion                DataVersion                      `json:"dataVersion"`
	MappingDataVersion         DataVersion                      `json:"mappingDataVersion"`
	TopicConfigTable           map[string]*TopicConfig          `json:"topicConfigTable"`
	TopicQueueMappingDetailMap map[string]*fastjson.Node        `json:"topicQueueMappingDetailMap"`
	TopicQueueMappingInfoMap   map[string]TopicQueueMappingInfo `json:"topicQueueMappingInfoMap"`
}

// RegisterBrokerBody is the body of REGISTER_BROKER.
type RegisterBrokerBody struct {
	FilterServerList []string           `json:"filterServerList"`
	Topics           TopicConfigWrapper `json:"topicConfigSerializeWrapper"`
}

// Encode writes the plain form. Absent maps and lists are written empty, as RocketMQ does.
func (b *RegisterBrokerBody) Encode() ([]byte, error) {
	if b.FilterServerList == nil {
		b.FilterServerList = []string{}
	}
	w := &b.Topics
	if w.TopicConfigTable == nil {
		w.TopicConfigTable = map[string]*TopicConfig{}
	}
	if w.TopicQueueMappingDetailMap == nil {
		w.TopicQueueMappingDetailMap = map[string]*fastjson.Node{}
	}
	if w.TopicQueueMappingInfoMap == nil {
		w.TopicQueueMappingInfoMap = map[string]TopicQueueMappingInfo{}
	}
	return fastjson.Marshal(b)
}

// Versions of the sender from which a form of the registration is used.
const (
	versionFullBody      = 37  // older brokers send the bare topic table
	versionQueueMappings = 413 // the compressed form ends with the static topics
)

// What a compressed registration may grow to: a few bytes of it make thousands.
const (
	maxRegisterBody    = 64 << 20
	maxRegisterSection = 8 << 20 // bytes of one of its parts; all but the filter servers are short
	maxRegisterTopics  = 1 << 18
)

// DecodeRegisterBody reads the body of a registration: empty, plain or compressed. RocketMQ 5.3 compresses without saying so, so the first
// byte decides as well. Errors name what is wrong and where.
func DecodeRegisterBody(body []byte, compressed bool, senderVersion int32) (*RegisterBrokerBody, error) {
	out := &RegisterBrokerBody{}
	out.Topics.TopicConfigTable = map[string]*TopicConfig{}
	if len(body) == 0 {
		return out, nil
	}
	if body[0] == 0x78 {
		return out, out.inflate(body, senderVersion)
	}
	if compressed {
		return nil, fmt.Errorf("registration says compressed, but its body starts with byte %#x", body[0])
	}
	if senderVersion < versionFullBody {
		return out, fastjson.Unmarshal(body, &out.Topics)
	}
	if err := fastjson.Unmarshal(body, out); err != nil {
		return nil, err
	}
	return out, nil
}

func (b *RegisterBrokerBody) inflate(body []byte, senderVersion int32) error {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("inflate registration: %w", err)
	}
	defer z.Close()
	r := sectionReader{r: bufio.NewReader(z), left: maxRegisterBody}
	if err := fastjson.Unmarshal(r.section("data version"), &b.Topics.DataVersion); err != nil {
		return err
	}
	topics := r.count("topics")
	if topics > maxRegisterTopics {
		return fmt.Errorf("registration announces %d topics; %d are allowed", topics, maxRegisterTopics)
	}
	for n := topics; n > 0 && r.err == nil; n-- {
		text := r.section("topic")
		if r.err != nil {
			return r.err
		}
		c, err := parseTopicText(string(text))
		if err != nil {
			return err
		}
		b.Topics.TopicConfigTable[c.TopicName] = c
	}
	if list := r.section("filter servers"); r.err == nil {
		if err := fastjson.Unmarshal(list, &b.FilterServerList); err != nil {
			return err
		}
	}
	if senderVersion < versionQueueMappings || r.err != nil || r.atEnd() {
		return r.err
	}
	b.Topics.TopicQueueMappingInfoMap = map[string]TopicQueueMappingInfo{}
	mappings := r.count("queue mappings")
	if mappings > maxRegisterTopics {
		return fmt.Errorf("registration announces %d queue mappings; %d are allowed", mappings, maxRegisterTopics)
	}
	for n := mappings; n > 0 && r.err == nil; n-- {
		var m TopicQueueMappingInfo
		if err := fastjson.Unmarshal(r.section("queue mapping"), &m); err != nil {
			return err
		}
		b.Topics.TopicQueueMappingInfoMap[m.Topic] = m
	}
	return r.err
}

// sectionReader reads the length-prefixed parts of a compressed registration as it is inflated. The first error stays.
type sectionReader struct {
	r    *bufio.Reader
	left int    // bytes that may still be read
	buf  []byte // of the last section
	err  error
}

// read fills p; what names it.
func (r *sectionReader) read(p []byte, what string) bool {
	if r.err != nil {
		return false
	}
	if r.left -= len(p); r.left < 0 {
		r.err = fmt.Errorf("inflate registration: more than %d bytes", maxRegisterBody)
		return false
	}
	switch n, err := io.ReadFull(r.r, p); {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		r.err = fmt.Errorf("registration ends %d bytes into %s, which has %d", n, what, len(p))
	case err != nil:
		r.err = fmt.Errorf("inflate registration: %w", err)
	}
	return r.err == nil
}

func (r *sectionReader) atEnd() bool {
	_, err := r.r.Peek(1)
	return err != nil
}

func (r *sectionReader) count(what string) int {
	var b [4]byte
	if !r.read(b[:], "the number of "+what) {
		return 0
	}
	n := int(int32(binary.BigEndian.Uint32(b[:])))
	if n < 0 {
		r.err = fmt.Errorf("registration announces %d %s", n, what)
		return 0
	}
	return n
}

// section is the next part, valid until the next call.
func (r *sectionReader) section(what string) []byte {
	n := r.count("bytes of " + what)
	if r.err == nil && n > maxRegisterSection {
		r.err = fmt.Errorf("registration announces %d bytes of %s; %d are allowed", n, what, maxRegisterSection)
	}
	r.buf = r.buf[:0]
	for len(r.buf) < n && r.err == nil { // in steps: the announced size may be a lie
		at := len(r.buf)
		r.buf = slices.Grow(r.buf, min(n-at, sectionStep))[:at+min(n-at, sectionStep)]
		r.read(r.buf[at:], what)
	}
	if r.err != nil {
		return nil
	}
	return r.buf
}

const sectionStep = 64 << 10

// parseTopicText reads "name read write perm filterType attributes".
func parseTopicText(s string) (*TopicConfig, error) {
	f := strings.SplitN(s, " ", 6)
	if len(f) < 5 {
		return nil, fmt.Errorf("registered topic %.200q: %d fields; five are needed", s, len(f))
	}
	c := &TopicConfig{TopicName: f[0], TopicFilterType: f[4], Attributes: map[string]string{}}
	for i, dst := range []*int32{&c.ReadQueueNums, &c.WriteQueueNums, &c.Perm} {
		n, err := strconv.ParseInt(f[i+1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("registered topic %.200q: %w", s, err)
		}
		*dst = int32(n)
	}
	if len(f) == 6 {
		if err := fastjson.Unmarshal([]byte(f[5]), &c.Attributes); err != nil {
			return nil, fmt.Errorf("registered topic %.200q: %w", s, err)
		}
	}
	return c, nil
}
