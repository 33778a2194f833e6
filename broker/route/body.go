package route

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/fastjson"
)

const permReadWrite = topic.PermRead | topic.PermWrite

// registration is the body of request 103. When the broker may not be read or written its topics say so too.
func registration(list []*topic.Config, version topic.Version, permission int32, compressed bool) ([]byte, error) {
	if permission&permReadWrite != permReadWrite {
		masked := make([]*topic.Config, len(list))
		for i, c := range list {
			masked[i] = c.Clone()
			masked[i].Perm &= permission
		}
		list = masked
	}
	if compressed {
		return packed(list, version)
	}
	table := make(fastjson.Pairs, 0, len(list))
	for _, c := range list {
		table = append(table, fastjson.Pair{Key: c.Name, Value: c})
	}
	wrapper := map[string]any{"dataVersion": version, "mappingDataVersion": topic.Version{}, "topicConfigTable": table,
		"topicQueueMappingDetailMap": struct{}{}, "topicQueueMappingInfoMap": struct{}{}}
	return fastjson.Marshal(map[string]any{"filterServerList": []string{}, "topicConfigSerializeWrapper": wrapper})
}

// packed is the compressed form: a zlib stream of the version, the topics as lines, no filter servers, no mappings.
func packed(list []*topic.Config, version topic.Version) ([]byte, error) {
	var out bytes.Buffer
	z, err := zlib.NewWriterLevel(&out, zlib.BestCompression)
	if err != nil {
		return nil, err
	}
	v, err := fastjson.Marshal(version)
	if err != nil {
		return nil, err
	}
	plain := appendPart(nil, v)
	plain = binary.BigEndian.AppendUint32(plain, uint32(len(list)))
	for _, c := range list {
		attrs, err := fastjson.Marshal(c.Attributes)
		if err != nil {
			return nil, err
		}
		plain = appendPart(plain, fmt.Appendf(nil, "%s %d %d %d %s %s", c.Name, c.ReadQueueNums, c.WriteQueueNums, c.Perm, c.FilterType, attrs))
	}
	plain = appendPart(plain, []byte("[]"))
	plain = binary.BigEndian.AppendUint32(plain, 0)
	if _, err := z.Write(plain); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func appendPart(dst, p []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(p))), p...)
}
