package store

import (
	"bytes"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/index"
)

// QueryKeys returns the newest records of a topic that carry a key, at most limit and maxMsgsNumBatch of them, stored in
// [begin, end] ms. With unique the key must be the message's UNIQ_KEY, otherwise it may also be one of KEYS. Other keys
// with the same hash are left out. It may wait for the disk.
func (s *Store) QueryKeys(topic, key string, limit int, begin, end int64, unique bool) (KeyResult, error) {
	var r KeyResult
	if s.closed.Load() {
		return r, ErrClosed
	}
	if s.idx == nil {
		return r, nil
	}
	m := keyMatch{s: s, topic: []byte(topic), key: []byte(key), begin: begin, end: end, unique: unique}
	offs, err := s.idx.Query(index.Query{
		Hash: index.Hash(m.topic, m.key), Max: min(limit, s.config().MaxMsgsNumBatch), Begin: begin, End: end,
	}, m.wants)
	if err == nil {
		err = m.err
	}
	if err != nil {
		return r, err
	}
	for _, off := range offs {
		v, err := s.log.Record(off)
		if err != nil { // its file went since it was matched
			continue
		}
		r.Views = append(r.Views, v)
		r.Bytes += v.Len()
	}
	st := s.idx.State()
	r.LastUpdateTime, r.LastUpdateStart = st.EndTime, max(st.EndLog, 0)
	return r, nil
}

// keyMatch decides about the candidates of one query.
type keyMatch struct {
	s          *Store
	topic, key []byte
	begin, end int64
	unique     bool
	buf        []byte
	rec        message.Record
	err        error
}

func (m *keyMatch) wants(off message.LogOffset) bool {
	if m.err != nil || off < m.s.log.Min() || int64(off) >= m.s.visible() {
		return false
	}
	v, err := m.s.log.Record(off)
	if err != nil {
		return false
	}
	defer v.Release()
	raw, err := m.bytes(v)
	if err != nil {
		m.err = err
		return false
	}
	if message.Parse(raw, &m.rec) != nil || m.rec.LogOffset != off || !bytes.Equal(m.rec.Topic, m.topic) {
		return false
	}
	return m.rec.StoreTime >= m.begin && m.rec.StoreTime <= m.end && m.hasKey()
}

// bytes reads what may be cold through the file, so that no page fault stops a processor.
func (m *keyMatch) bytes(v commitlog.View) ([]byte, error) {
	if m.s.log.Written().Load()-int64(v.Offset()) <= m.s.hot {
		return v.Bytes(), nil
	}
	if cap(m.buf) < v.Len() {
		m.buf = make([]byte, v.Len())
	}
	raw := m.buf[:v.Len()]
	_, err := v.ReadAt(raw, 0)
	return raw, err
}

func (m *keyMatch) hasKey() bool {
	if u, ok := message.Property(m.rec.Properties, message.PropUniqKey); ok && bytes.Equal(u, m.key) {
		return true
	}
	if m.unique {
		return false
	}
	keys, _ := message.Property(m.rec.Properties, message.PropKeys)
	found := false
	message.EachKey(keys, func(k []byte) { found = found || bytes.Equal(k, m.key) })
	return found
}
