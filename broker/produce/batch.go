package produce

import (
	"errors"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// sendBatch stores the items of a client batch as records of their own, side by side in the log and in the queue. Each
// has its own properties; those of the batch message say whether to wait and give the answer its transactionId
// (docs/decisions/0003-batch-properties.md).
func (h *Handler) sendBatch(c *settings, p *pending, req *remoting.Request) error {
	m, f := &p.header, &p.found
	if err := batchAllowed(c, m, f, len(req.Body)); err != nil {
		return err
	}
	p.finish(c, h.IDs)
	uniq := p.acks.save(p.uniq())
	p.append() // what came before: the batch is appended alone, all of it or nothing
	p.msg = message.Message{Topic: m.topic, QueueID: m.queueID, SysFlag: m.sysFlag, BornTime: m.born,
		BornHost: c.bornHost(req), StoreHost: c.StoreHost, ReconsumeTimes: m.reconsumeTimes}
	if err := message.EachBatchItem(req.Body, p.item); err != nil || p.batch.Len() == 0 {
		p.batch.Reset()
		if errors.Is(err, errManyItems) {
			return refusal(protocol.MessageIllegal, "the batch has more than %d messages", p.mostItems())
		}
		return errIllegal
	}
	p.count(m.topic, m.queueID, p.batch.Len(), p.batch.Bytes())
	p.acks.add(req, ack{queueID: m.queueID, n: p.batch.Len(), noWait: f.noWait, uniq: uniq})
	p.append()
	return nil
}

var errManyItems = errors.New("too many messages in a batch")

// answerIDs bounds the ids in the answer to a batch: a message must not be stored when its answer is too long to be sent.
const answerIDs = 1900 << 10

// mostItems is how many messages a batch may have.
func (p *pending) mostItems() int {
	if p.msg.StoreHost.Addr().Unmap().Is4() {
		return answerIDs / 33 // 32 digits and a comma
	}
	return answerIDs / 57
}

// addItem encodes one item into the batch.
func (p *pending) addItem(it *message.BatchItem) error {
	m := &p.msg
	if p.batch.Len() >= p.mostItems() {
		return errManyItems
	}
	m.Flag, m.Body, m.Properties = it.Flag, it.Body, it.Properties
	if _, ok := message.Property(it.Properties, message.PropUniqKey); !ok {
		m.Properties = p.withUniq(it.Properties)
	}
	return p.batch.Add(m)
}

// batchAllowed runs the checks of data-plane.md 2.5.
func batchAllowed(c *settings, m *header, f *properties, size int) error {
	switch kind := m.sysFlag & message.TransactionMask; {
	case len(m.topic) > message.MaxTopicLen:
		return refusal(protocol.MessageIllegal, "message topic length too long %d", len(m.topic))
	case message.IsRetryTopicBytes(m.topic):
		return refusal(protocol.MessageIllegal, "batch request does not support retry group %s", m.topic)
	case kind != 0, f.prepared, f.innerBatch, m.sysFlag&(message.FlagInnerBatch|message.FlagNeedUnwrap) != 0, size > c.MaxMessageSize:
		return errIllegal
	}
	if level, _ := protocol.ParseInt(f.delay); level > 0 {
		return errIllegal
	}
	return nil
}

// withUniq is props with a UNIQ_KEY in front of it, in the scratch.
func (p *pending) withUniq(props []byte) []byte {
	p.text = append(p.text[:0], message.PropUniqKey...)
	p.text = append(p.text, nameEnd)
	p.text = p.h.IDs.Append(p.text)
	p.text = append(p.text, valueEnd)
	p.text = append(p.text, props...)
	return p.text
}
