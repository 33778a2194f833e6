// Package admin holds RocketMQ's administrative calls with Go types: topics, groups, offsets, messages, brokers, name servers.
//
// Its type is Admin, made on a client.Client, whose connections and routes it uses. The epochmq command and operators' programs call it. It
// keeps no state and starts no goroutine that outlives a call. What concerns a topic or group goes to every broker that has it; what concerns
// one broker takes that broker's address.
package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Admin makes administrative calls. It is safe for concurrent use.
type Admin struct{ c *client.Client }

// New makes an Admin on a client, which stays the caller's.
func New(c *client.Client) *Admin { return &Admin{c} }

// NotFound tells whether an error says that the topic, group or message asked for does not exist.
func NotFound(err error) bool {
	var e *client.ServerError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case protocol.TopicNotExist, protocol.QueryNotFound, protocol.SubscriptionGroupNotExist, protocol.ConsumerNotOnline, protocol.NoMessage:
		return true
	}
	return false
}

func (a *Admin) call(ctx context.Context, addr string, code int32, ext map[string]string, body []byte) (*protocol.Command, error) {
	return a.c.Call(ctx, addr, protocol.NewRequest(code, ext, body))
}

// decode makes a request and reads the JSON of its answer.
func decode[T any](ctx context.Context, a *Admin, addr string, code int32, ext map[string]string) (*T, error) {
	answer, err := a.call(ctx, addr, code, ext, nil)
	if err != nil {
		return nil, err
	}
	return read[T](addr, answer)
}

func read[T any](addr string, answer *protocol.Command) (*T, error) {
	v := new(T)
	if err := fastjson.Unmarshal(answer.Body, v); err != nil {
		return nil, fmt.Errorf("answer of %s: %w", addr, err)
	}
	return v, nil
}

func (a *Admin) callNS(ctx context.Context, code int32, ext map[string]string) (*protocol.Command, error) {
	return a.c.CallNameServer(ctx, protocol.NewRequest(code, ext, nil))
}

func decodeNS[T any](ctx context.Context, a *Admin, code int32, ext map[string]string) (*T, error) {
	answer, err := a.callNS(ctx, code, ext)
	if err != nil {
		return nil, err
	}
	return read[T]("name server", answer)
}

// each calls fn for all addresses at once and joins the errors.
func each(addrs []string, fn func(addr string) error) error {
	errs := make([]error, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := fn(addr); err != nil {
				errs[i] = fmt.Errorf("broker %s: %w", addr, err)
			}
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Cluster lists all brokers that the name server knows.
func (a *Admin) Cluster(ctx context.Context) (*protocol.ClusterInfo, error) {
	return decodeNS[protocol.ClusterInfo](ctx, a, protocol.ReqGetBrokerClusterInfo, nil)
}

// Target names brokers: one by address, or the masters of a cluster, or, when both are empty, the masters of all clusters.
type Target struct {
	Addr    string
	Cluster string
}

// Masters returns the addresses of a target, sorted. A target without a broker is an error.
func (a *Admin) Masters(ctx context.Context, t Target) ([]string, error) {
	if t.Addr != "" {
		return []string{t.Addr}, nil
	}
	info, err := a.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, b := range info.BrokerAddrTable {
		if addr := b.BrokerAddrs[0]; addr != "" && (t.Cluster == "" || t.Cluster == b.Cluster) {
			seen[addr] = true
		}
	}
	if len(seen) == 0 {
		if t.Cluster != "" {
			return nil, fmt.Errorf("no master broker in cluster %q; there are: %s", t.Cluster, strings.Join(slices.Sorted(maps.Keys(info.ClusterAddrTable)), ", "))
		}
		return nil, errors.New("the name server knows no master broker")
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// topicBrokers returns the addresses that serve a topic: the master of each broker, or a replica when there is none.
func (a *Admin) topicBrokers(ctx context.Context, topic string) ([]string, error) {
	r, err := a.c.Route(ctx, topic)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, b := range r.Brokers() {
		if addr, _ := r.Any(b, 0); addr != "" {
			out = append(out, addr)
		}
	}
	if len(out) == 0 {
		return nil, &client.RouteError{Topic: topic}
	}
	return out, nil
}

// groupBrokers returns the addresses that know a group: those of its retry topic, else of a topic that it reads, else all masters.
func (a *Admin) groupBrokers(ctx context.Context, group, topic string) ([]string, error) {
	for _, t := range []string{message.RetryTopic(group), topic} {
		if t == "" {
			continue
		}
		addrs, err := a.topicBrokers(ctx, t)
		if err == nil {
			return addrs, nil
		}
		if !NotFound(err) {
			return nil, err
		}
	}
	return a.Masters(ctx, Target{})
}
