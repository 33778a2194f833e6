// Package topic is the table of topics of a broker.
//
// The main type is Table: what topics exist, with how many queues and which permissions, kept in topics.json. The
// request handlers of produce, pull, query and admin look topics up in it, sending creates topics in it, and route
// registers what it holds. A lookup reads an immutable snapshot: no lock, no allocation. A change is on disk before it
// can be seen. It never touches the store's queue files and never talks to a name server.
//
// Format: docs/formats/config-json.md.
package topic

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/epochmq/epochmq/internal/turn"
)

// File is where a table is kept: Load hands the last whole content to parse (found is false when there never was one),
// Save replaces the content durably.
type File interface {
	Load(parse func([]byte) error) (found bool, err error)
	Save(data []byte) error
}

// Options say what a Table is made of.
type Options struct {
	File        File
	BrokerName  string
	ClusterName string
	TraceTopic  string // name of the trace topic, RMQ_SYS_TRACE_TOPIC when empty

	AutoCreateTopic    func() bool  // may sending create topics; asked at each creation
	DefaultTopicQueues func() int32 // queues of TBW102
	ClusterTopic       bool         // the topic of the cluster's name is readable and writable
	BrokerTopic        bool         // the topic of the broker's name is readable and writable
	TraceTopicOn       bool
	TimerWheel         bool
	ReviveQueues       int32
}

// Change tells what a round of changes did.
type Change struct {
	Updated []*Config // created or changed
	Deleted []string
	Version Version
}

// Table holds the topics of one broker. Its methods may be called from any goroutine.
type Table struct {
	opt    Options
	snap   atomic.Pointer[snapshot]
	rounds turn.Rounds[*draft]

	mu       sync.Mutex
	onChange []func(Change) // guarded by mu
}

// snapshot is immutable once published.
type snapshot struct {
	byName  map[string]*Config
	order   []string // as in the file, new ones last
	version Version
}

type draft struct {
	*snapshot
	change Change
	dirty  bool // a new version is to be made
	owned  bool // the maps are the draft's own
}

// Open loads the table and adds the topics that every broker has. A file that is present but broken is an error.
func Open(opt Options) (*Table, error) {
	t := &Table{opt: opt}
	if t.opt.TraceTopic == "" {
		t.opt.TraceTopic = "RMQ_SYS_TRACE_TOPIC"
	}
	t.rounds.Begin = t.begin
	t.rounds.Commit = t.commit
	first := &snapshot{byName: map[string]*Config{}, version: NewVersion()}
	if _, err := opt.File.Load(func(data []byte) error {
		s, err := decode(data)
		if err == nil {
			first = s
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("load topics: %w", err)
	}
	t.snap.Store(first)
	err := t.rounds.Do(func(d *draft) error {
		for _, c := range t.bootTopics() {
			if _, ok := d.byName[c.Name]; !ok {
				d.put(c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("save topics: %w", err)
	}
	return t, nil
}

// Get finds a topic by its name as it stands in a frame; nil when there is none. It does not allocate.
func (t *Table) Get(name []byte) *Config { return t.snap.Load().byName[string(name)] }

// Lookup is Get for a string.
func (t *Table) Lookup(name string) *Config { return t.snap.Load().byName[name] }

// Version is the version of the present state.
func (t *Table) Version() Version { return t.snap.Load().version }

// Len is the number of topics.
func (t *Table) Len() int { return len(t.snap.Load().byName) }

// All returns every topic, in the order of the file, and the version that they make.
func (t *Table) All() ([]*Config, Version) {
	s := t.snap.Load()
	out := make([]*Config, 0, len(s.order))
	for _, name := range s.order {
		out = append(out, s.byName[name])
	}
	return out, s.version
}

// OnChange has fn called after each change, on the goroutine that made it, with no lock held.
func (t *Table) OnChange(fn func(Change)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onChange = append(t.onChange, fn)
}

// CreateOnSend makes the topic that a producer sends to after the rules of data-plane.md 2.2: defaultTopic is the
// template, queues what the client wishes. A retry topic is made with one queue when the rules forbid. It returns nil
// when the topic does not exist and may not be created. The caller has checked the name.
func (t *Table) CreateOnSend(name, defaultTopic string, queues, sysFlag int32) (*Config, error) {
	return t.create(name, func(d *draft) *Config {
		if c := t.inherit(d, name, defaultTopic, queues, sysFlag); c != nil {
			return c
		}
		if !strings.HasPrefix(name, RetryPrefix) {
			return nil
		}
		c := NewConfig(name, 1)
		c.SysFlag = sysFlag
		return c
	})
}

func (t *Table) inherit(d *draft, name, defaultTopic string, queues, sysFlag int32) *Config {
	def := d.byName[defaultTopic]
	if def == nil {
		return nil
	}
	perm := def.Perm
	if defaultTopic == DefaultTopic && !t.opt.AutoCreateTopic() {
		perm &^= PermInherit
	}
	if perm&PermInherit == 0 {
		return nil
	}
	c := NewConfig(name, max(0, min(queues, def.WriteQueueNums)))
	c.Perm = perm &^ PermInherit
	c.SysFlag = sysFlag
	c.FilterType = def.FilterType
	return c
}

// Ensure returns the topic, made with the given shape when it did not exist: retry and dead-letter topics, and topics
// of the broker's own.
func (t *Table) Ensure(name string, queues, perm, sysFlag int32, order bool) (*Config, error) {
	return t.create(name, func(*draft) *Config {
		c := NewConfig(name, queues)
		c.Perm, c.SysFlag, c.Order = perm, sysFlag, order
		return c
	})
}

func (t *Table) create(name string, make func(*draft) *Config) (*Config, error) {
	if c := t.Lookup(name); c != nil {
		return c, nil
	}
	var made *Config
	err := t.rounds.Do(func(d *draft) error {
		if made = d.byName[name]; made != nil {
			return nil
		}
		if made = make(d); made != nil {
			d.put(made)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("create topic %s: %w", name, err)
	}
	return made, nil
}

// Update creates or replaces topics in one round; the keys of Attributes carry + or - and are merged into what the
// topic has. A topic that equals what is there is skipped. A bad attribute refuses all (*AttributeError). System names
// are the caller's to refuse.
func (t *Table) Update(list ...*Config) error {
	return t.rounds.Do(func(d *draft) error {
		next := make([]*Config, 0, len(list))
		for _, c := range list {
			old := d.byName[c.Name]
			if old != nil && old.Equal(c) {
				continue
			}
			var have map[string]string
			if old != nil {
				have = old.Attributes
			}
			attrs, err := alterAttributes(old == nil, have, c.Attributes)
			if err != nil {
				return err
			}
			c = c.Clone()
			c.Attributes = attrs
			next = append(next, c)
		}
		for _, c := range next {
			d.put(c)
		}
		return nil
	})
}

// Delete removes a topic and says whether there was one. Queues and offsets of it are the caller's.
func (t *Table) Delete(name string) (existed bool, err error) {
	err = t.rounds.Do(func(d *draft) error {
		if existed = d.byName[name] != nil; existed {
			d.remove(name)
		}
		return nil
	})
	return existed, err
}

// Touch makes a new version without a change of a topic, so that the name servers are told again.
func (t *Table) Touch() error {
	return t.rounds.Do(func(d *draft) error { d.dirty = true; return nil })
}

// SetOrder marks the topics of the name servers' ORDER_TOPIC_CONFIG as ordered.
func (t *Table) SetOrder(topics []string) error {
	missing := false
	for _, name := range topics {
		c := t.Lookup(name)
		missing = missing || c != nil && !c.Order
	}
	if !missing {
		return nil
	}
	return t.rounds.Do(func(d *draft) error {
		for _, name := range topics {
			if c := d.byName[name]; c != nil && !c.Order {
				c = c.Clone()
				c.Order = true
				d.put(c)
			}
		}
		return nil
	})
}

func (t *Table) begin() *draft { return &draft{snapshot: t.snap.Load()} }

// own makes the draft's maps its own at the first change.
func (d *draft) own() {
	if d.owned {
		return
	}
	byName := make(map[string]*Config, len(d.byName)+8)
	for k, v := range d.byName {
		byName[k] = v
	}
	d.snapshot = &snapshot{byName: byName, order: append([]string(nil), d.order...), version: d.version}
	d.dirty, d.owned = true, true
}

func (d *draft) put(c *Config) {
	d.own()
	if _, ok := d.byName[c.Name]; !ok {
		d.order = append(d.order, c.Name)
	}
	d.byName[c.Name] = c
	d.change.Updated = append(d.change.Updated, c)
}

func (d *draft) remove(name string) {
	d.own()
	delete(d.byName, name)
	for i, n := range d.order {
		if n == name {
			d.order = append(d.order[:i], d.order[i+1:]...)
			break
		}
	}
	d.change.Deleted = append(d.change.Deleted, name)
}

// commit writes the file, then publishes, then tells.
func (t *Table) commit(d *draft) error {
	if !d.dirty {
		return nil
	}
	next := &snapshot{byName: d.byName, order: d.order, version: d.version.Next()}
	data, err := encode(next)
	if err != nil {
		return err
	}
	if err := t.opt.File.Save(data); err != nil {
		return err
	}
	t.snap.Store(next)
	d.change.Version = next.version
	t.mu.Lock()
	tell := t.onChange
	t.mu.Unlock()
	for _, fn := range tell {
		fn(d.change)
	}
	return nil
}
