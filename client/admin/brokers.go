package admin

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// BrokerConfig reads a broker's configuration.
func (a *Admin) BrokerConfig(ctx context.Context, addr string) (map[string]string, error) {
	answer, err := a.call(ctx, addr, protocol.ReqGetBrokerConfig, nil, nil)
	if err != nil {
		return nil, err
	}
	return properties(answer.Body), nil
}

// UpdateBrokerConfig changes keys of a broker's configuration, which writes them to its file.
func (a *Admin) UpdateBrokerConfig(ctx context.Context, addr string, set map[string]string) error {
	_, err := a.call(ctx, addr, protocol.ReqUpdateBrokerConfig, nil, appendProperties(set))
	return err
}

// NameServerConfig reads a name server's configuration.
func (a *Admin) NameServerConfig(ctx context.Context, addr string) (map[string]string, error) {
	answer, err := a.call(ctx, addr, protocol.ReqGetNamesrvConfig, nil, nil)
	if err != nil {
		return nil, err
	}
	return properties(answer.Body), nil
}

// UpdateNameServerConfig changes keys of a name server's configuration.
func (a *Admin) UpdateNameServerConfig(ctx context.Context, addr string, set map[string]string) error {
	_, err := a.call(ctx, addr, protocol.ReqUpdateNamesrvConfig, nil, appendProperties(set))
	return err
}

// properties reads lines of key=value.
func properties(text []byte) map[string]string {
	m := map[string]string{}
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if k, v, ok := strings.Cut(string(line), "="); ok {
			m[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return m
}

func appendProperties(set map[string]string) []byte {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(set)) {
		b = append(append(append(append(b, k...), '='), set[k]...), '\n')
	}
	return b
}

// RuntimeInfo reads a broker's counters and gauges.
func (a *Admin) RuntimeInfo(ctx context.Context, addr string) (map[string]string, error) {
	t, err := decode[protocol.KVTable](ctx, a, addr, protocol.ReqGetBrokerRuntimeInfo, nil)
	if err != nil {
		return nil, err
	}
	return t.Table, nil
}

// SetWritePerm takes the permission to write from all topics of a broker at the name servers, or gives it back. It returns how many topics
// were changed.
func (a *Admin) SetWritePerm(ctx context.Context, broker string, on bool) (int, error) {
	code, field := protocol.ReqWipeWritePermOfBroker, "wipeTopicCount"
	if on {
		code, field = protocol.ReqAddWritePermOfBroker, "addTopicCount"
	}
	answer, err := a.callNS(ctx, code, map[string]string{"brokerName": broker})
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(answer.Ext[field])
}

// GetKV reads a value of the name servers' key-value store.
func (a *Admin) GetKV(ctx context.Context, namespace, key string) (string, error) {
	answer, err := a.callNS(ctx, protocol.ReqGetKVConfig, map[string]string{"namespace": namespace, "key": key})
	if err != nil {
		return "", err
	}
	return answer.Ext["value"], nil
}

// PutKV writes a value at each of these name servers, which do not tell each other.
func (a *Admin) PutKV(ctx context.Context, nameServers []string, namespace, key, value string) error {
	return each(nameServers, func(addr string) error {
		_, err := a.call(ctx, addr, protocol.ReqPutKVConfig, map[string]string{"namespace": namespace, "key": key, "value": value}, nil)
		return err
	})
}

// DeleteKV deletes a value at each of these name servers.
func (a *Admin) DeleteKV(ctx context.Context, nameServers []string, namespace, key string) error {
	return each(nameServers, func(addr string) error {
		_, err := a.call(ctx, addr, protocol.ReqDeleteKVConfig, map[string]string{"namespace": namespace, "key": key}, nil)
		return err
	})
}

// CleanExpiredQueues lets a broker drop queue files that point below its log.
func (a *Admin) CleanExpiredQueues(ctx context.Context, addr string) error {
	_, err := a.call(ctx, addr, protocol.ReqCleanExpiredConsumeQueue, nil, nil)
	return err
}

// DeleteExpiredLog lets a broker delete log files that are past their time.
func (a *Admin) DeleteExpiredLog(ctx context.Context, addr string) error {
	_, err := a.call(ctx, addr, protocol.ReqDeleteExpiredCommitLog, nil, nil)
	return err
}

// CleanUnusedTopics lets a broker delete the files of topics that it does not know any more.
func (a *Admin) CleanUnusedTopics(ctx context.Context, addr string) error {
	_, err := a.call(ctx, addr, protocol.ReqCleanUnusedTopic, nil, nil)
	return err
}

// EarliestStoreTime returns when the first message of a queue that is still there was stored, in ms since the epoch; -1 when there is none.
func (a *Admin) EarliestStoreTime(ctx context.Context, q client.Queue) (int64, error) {
	r, err := a.c.Route(ctx, q.Topic)
	if err != nil {
		return 0, err
	}
	addr, _ := r.Any(q.Broker, 0)
	if addr == "" {
		return 0, &client.RouteError{Topic: q.Topic}
	}
	answer, err := a.call(ctx, addr, protocol.ReqGetEarliestMsgStoreTime, map[string]string{"topic": q.Topic, "queueId": itoa(q.ID)}, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(answer.Ext["timestamp"], 10, 64)
}
