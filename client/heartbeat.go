package client

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// heartbeat describes this client; masters need to know producers, all brokers the consumers.
func (c *Client) heartbeat() (full, consumersOnly *protocol.HeartbeatData) {
	c.mu.Lock()
	producers := slices.Sorted(maps.Keys(c.producers))
	groups := slices.Collect(maps.Values(c.groups))
	c.mu.Unlock()
	h := &protocol.HeartbeatData{ClientID: c.id, ConsumerDataSet: []protocol.ConsumerData{}, ProducerDataSet: []protocol.ProducerData{}}
	for _, g := range groups {
		if d, ok := g.describe(); ok {
			h.ConsumerDataSet = append(h.ConsumerDataSet, d)
		}
	}
	only := *h
	for _, p := range producers {
		h.ProducerDataSet = append(h.ProducerDataSet, protocol.ProducerData{GroupName: p})
	}
	return h, &only
}

// beatAll sends a heartbeat to every broker of the topics in use. Errors are logged: the next one may succeed.
func (c *Client) beatAll(ctx context.Context) {
	_, routes := c.routes.all()
	masters := map[string]bool{}
	for _, r := range routes {
		for _, ids := range r.Addrs {
			for id, addr := range ids {
				masters[addr] = masters[addr] || id == 0
			}
		}
	}
	full, only := c.heartbeat()
	var wg sync.WaitGroup
	for addr, master := range masters {
		h := only
		if master {
			h = full
		}
		if len(h.ConsumerDataSet)+len(h.ProducerDataSet) == 0 {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := c.beat(ctx, addr, h); err != nil && ctx.Err() == nil {
				c.log.Debug("heartbeat", "addr", addr, "error", err)
			}
		}()
	}
	wg.Wait()
}

// introduce sends a heartbeat to one broker, so that it knows our groups before we ask it for something. One that began after since serves
// as well; callers at the same time share one.
func (c *Client) introduce(ctx context.Context, addr string, since time.Time) error {
	for ctx.Err() == nil {
		c.mu.Lock()
		done := c.introduced[addr].After(since)
		c.mu.Unlock()
		if done {
			return nil
		}
		_, err, _ := c.flights.Do(addr, func() (any, error) {
			begun := time.Now()
			full, _ := c.heartbeat()
			err := c.beat(c.ctx, addr, full)
			if err == nil {
				c.mu.Lock()
				c.introduced[addr] = begun
				c.mu.Unlock()
			}
			return nil, err
		})
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (c *Client) beat(ctx context.Context, addr string, h *protocol.HeartbeatData) error {
	body, err := fastjson.Marshal(h)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	_, err = c.Call(ctx, addr, protocol.NewRequest(protocol.ReqHeartBeat, nil, body))
	return err
}

// unregister tells all brokers that a group has left. Best effort: they notice the closed connection anyway.
func (c *Client) unregister(ctx context.Context, producer, consumer string) {
	ext := map[string]string{"clientID": c.id}
	if producer != "" {
		ext["producerGroup"] = producer
	}
	if consumer != "" {
		ext["consumerGroup"] = consumer
	}
	ctx, cancel := context.WithTimeout(ctx, min(c.cfg.RequestTimeout, time.Second))
	defer cancel()
	_, routes := c.routes.all()
	addrs := map[string]bool{}
	for _, r := range routes {
		for _, ids := range r.Addrs {
			for _, addr := range ids {
				addrs[addr] = true
			}
		}
	}
	var wg sync.WaitGroup
	for addr := range addrs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := c.Call(ctx, addr, protocol.NewRequest(protocol.ReqUnregisterClient, maps.Clone(ext), nil)); err != nil {
				c.log.Debug("unregister", "addr", addr, "error", err)
			}
		}()
	}
	wg.Wait()
}
