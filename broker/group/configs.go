package group

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/turn"
)

// SystemPrefix begins the names of groups that the broker itself uses; clients may not delete them.
const SystemPrefix = "CID_RMQ_SYS_"

// bootGroups exist on every broker.
var bootGroups = []string{"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
	"CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS"}

const maxGroupLen = 120 // bytes of the name of a group that is created by use

// Options say what Configs is made of.
type Options struct {
	File       topic.File
	AutoCreate func() bool // may a group be created by being used; asked each time
}

// Configs is the table of group configs, kept in subscriptionGroup.json. Lookups read a snapshot and do not allocate; a
// change is on disk before it can be seen.
type Configs struct {
	opt    Options
	snap   atomic.Pointer[snapshot]
	rounds turn.Rounds[*draft]

	mu       sync.Mutex
	onDelete []func(group string) // guarded by mu
}

// snapshot is immutable once published.
type snapshot struct {
	byName         map[string]*Config
	order          []string
	forbidden      map[string]map[string]int32 // group -> topic -> bits
	forbiddenOrder []string
	version        Version
}

type draft struct {
	*snapshot
	owned   bool
	deleted []string
}

// OpenConfigs loads the table and adds the groups that every broker has. A file that is present but broken is an error.
func OpenConfigs(opt Options) (*Configs, error) {
	g := &Configs{opt: opt}
	g.rounds.Begin = func() *draft { return &draft{snapshot: g.snap.Load()} }
	g.rounds.Commit = g.commit
	first := &snapshot{byName: map[string]*Config{}, version: topic.NewVersion()}
	if _, err := opt.File.Load(func(data []byte) error {
		s, err := decode(data)
		if err == nil {
			first = s
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("load groups: %w", err)
	}
	g.snap.Store(first)
	err := g.rounds.Do(func(d *draft) error {
		for _, name := range bootGroups {
			if d.byName[name] == nil {
				d.put(NewConfig(name))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("save groups: %w", err)
	}
	return g, nil
}

// Find returns the config of a group by its name as it stands in a frame, nil when there is none. No allocation.
func (g *Configs) Find(name []byte) *Config { return g.snap.Load().byName[string(name)] }

// Lookup is Find for a string.
func (g *Configs) Lookup(name string) *Config { return g.snap.Load().byName[name] }

// FindOrCreate is Find that creates the group when the broker lets groups be created by use (or the group is of the
// system) and the name is legal; else nil. The error is of the disk.
func (g *Configs) FindOrCreate(name []byte) (*Config, error) {
	if c := g.Find(name); c != nil {
		return c, nil
	}
	return g.create(string(name))
}

func (g *Configs) create(name string) (*Config, error) {
	if !g.opt.AutoCreate() && !strings.HasPrefix(name, SystemPrefix) || !legal(name) {
		return nil, nil
	}
	var made *Config
	err := g.rounds.Do(func(d *draft) error {
		if made = d.byName[name]; made == nil {
			made = NewConfig(name)
			d.put(made)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("create group %s: %w", name, err)
	}
	return made, nil
}

// All returns every config in the order of the file, and the version that they make.
func (g *Configs) All() ([]*Config, Version) {
	s := g.snap.Load()
	out := make([]*Config, 0, len(s.order))
	for _, name := range s.order {
		out = append(out, s.byName[name])
	}
	return out, s.version
}

// Version is the version of the present state.
func (g *Configs) Version() Version { return g.snap.Load().version }

// Update creates or replaces groups in one round. Keys of Attributes carry + or -; RocketMQ defines none for groups, so
// any is refused (*topic.AttributeError). Names are the caller's to check.
func (g *Configs) Update(list ...*Config) error {
	return g.rounds.Do(func(d *draft) error {
		for _, c := range list {
			for key := range c.Attributes {
				return &topic.AttributeError{Remark: "unsupported key: " + strings.TrimLeft(key, "+-")}
			}
		}
		for _, c := range list {
			c = c.Clone()
			c.Attributes = map[string]string{}
			if old := d.byName[c.Name]; old != nil && old.Attributes != nil {
				c.Attributes = old.Attributes
			}
			d.put(c)
		}
		return nil
	})
}

// Delete removes a group and its forbidden entries and says whether there was one.
func (g *Configs) Delete(name string) (existed bool, err error) {
	err = g.rounds.Do(func(d *draft) error {
		if existed = d.byName[name] != nil; existed {
			d.remove(name)
		}
		return nil
	})
	return existed, err
}

// OnDelete has fn called after a group was deleted, with no lock held.
func (g *Configs) OnDelete(fn func(group string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onDelete = append(g.onDelete, fn)
}

// ForbiddenRead is the bit of the forbidden table that stops a group from reading a topic.
const ForbiddenRead = 1

// Forbidden says whether the bit with the index is set for the group and topic.
func (g *Configs) Forbidden(group, topic string, index int) bool {
	return g.snap.Load().forbidden[group][topic]>>index&1 == 1
}

// ForbiddenTable returns the whole table. It is shared and must not be changed.
func (g *Configs) ForbiddenTable() map[string]map[string]int32 {
	if t := g.snap.Load().forbidden; t != nil {
		return t
	}
	return map[string]map[string]int32{}
}

// SetForbidden sets or clears the bit with the index.
func (g *Configs) SetForbidden(group, topic string, index int, on bool) error {
	return g.rounds.Do(func(d *draft) error {
		old := d.forbidden[group][topic]
		next := old &^ (1 << index)
		if on {
			next = old | 1<<index
		}
		if next != old {
			d.forbid(group, topic, next)
		}
		return nil
	})
}

func (d *draft) own() {
	if d.owned {
		return
	}
	s := *d.snapshot
	s.byName = make(map[string]*Config, len(d.byName)+8)
	for k, v := range d.byName {
		s.byName[k] = v
	}
	s.order = append([]string(nil), d.order...)
	s.forbidden = make(map[string]map[string]int32, len(d.forbidden))
	for k, v := range d.forbidden {
		s.forbidden[k] = v
	}
	s.forbiddenOrder = append([]string(nil), d.forbiddenOrder...)
	d.snapshot, d.owned = &s, true
}

func (d *draft) put(c *Config) {
	d.own()
	if _, ok := d.byName[c.Name]; !ok {
		d.order = append(d.order, c.Name)
	}
	d.byName[c.Name] = c
}

func (d *draft) remove(name string) {
	d.own()
	delete(d.byName, name)
	d.order = without(d.order, name)
	delete(d.forbidden, name)
	d.forbiddenOrder = without(d.forbiddenOrder, name)
	d.deleted = append(d.deleted, name)
}

func (d *draft) forbid(group, topic string, bits int32) {
	d.own()
	topics := map[string]int32{}
	for k, v := range d.forbidden[group] {
		topics[k] = v
	}
	if bits == 0 {
		delete(topics, topic)
	} else {
		topics[topic] = bits
	}
	if _, ok := d.forbidden[group]; !ok {
		d.forbiddenOrder = append(d.forbiddenOrder, group)
	}
	d.forbidden[group] = topics
	if len(topics) == 0 {
		delete(d.forbidden, group)
		d.forbiddenOrder = without(d.forbiddenOrder, group)
	}
}

func without(list []string, name string) []string {
	for i, n := range list {
		if n == name {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// commit writes the file, then publishes, then tells.
func (g *Configs) commit(d *draft) error {
	if !d.owned {
		return nil
	}
	d.version = d.version.Next()
	data, err := encode(d.snapshot)
	if err != nil {
		return err
	}
	if err := g.opt.File.Save(data); err != nil {
		return err
	}
	g.snap.Store(d.snapshot)
	g.mu.Lock()
	tell := g.onDelete
	g.mu.Unlock()
	for _, name := range d.deleted {
		for _, fn := range tell {
			fn(name)
		}
	}
	return nil
}

// legal is the rule for names that are created by use.
func legal(name string) bool {
	if name == "" || len(name) > maxGroupLen {
		return false
	}
	for i := range len(name) {
		c := name[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '%' || c == '|'
		if !ok {
			return false
		}
	}
	return true
}
