package namesrv

import (
	"fmt"
	"maps"
	"sync"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/internal/statefile"
)

// orderTopicNamespace holds the queue counts of ordered topics; brokers get it with every registration.
const orderTopicNamespace = "ORDER_TOPIC_CONFIG"

// KV is the key-value configuration: namespace, key, value, kept in one JSON file. Safe for concurrent use.
//
// Invariant: what a reader sees is on disk, because Put and Delete write the file before they change the table.
type KV struct {
	fsys statefile.FS
	path string

	writing sync.Mutex // held over a whole change, with its file; taken before mu
	mu      sync.RWMutex
	table   map[string]map[string]string // guarded by mu, replaced on change
}

type kvFile struct {
	ConfigTable map[string]map[string]string `json:"configTable"`
}

// OpenKV reads the file at path, which need not exist. A file that cannot be read is an error that names it.
func OpenKV(fsys statefile.FS, path string) (*KV, error) {
	kv := &KV{fsys: fsys, path: path, table: map[string]map[string]string{}}
	_, err := statefile.Load(fsys, path, func(b []byte) error {
		var f kvFile
		if err := fastjson.Unmarshal(b, &f); err != nil {
			return err
		}
		if f.ConfigTable != nil {
			kv.table = f.ConfigTable
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return kv, nil
}

// Get returns a value.
func (kv *KV) Get(namespace, key string) (string, bool) {
	kv.mu.RLock()
	defer kv.mu.RUnlock()
	v, ok := kv.table[namespace][key]
	return v, ok
}

// Namespace returns a copy of one namespace.
func (kv *KV) Namespace(namespace string) (map[string]string, bool) {
	kv.mu.RLock()
	defer kv.mu.RUnlock()
	m, ok := kv.table[namespace]
	return maps.Clone(m), ok
}

// Put sets a value and returns once it is on disk.
func (kv *KV) Put(namespace, key, value string) error {
	return kv.change(namespace, func(m map[string]string) { m[key] = value }, maxKV)
}

// maxKV bounds the file in bytes: every change writes all of it, and brokers get a namespace with each registration.
const maxKV = 4 << 20

// Delete removes a value; removing what is not there is no error.
func (kv *KV) Delete(namespace, key string) error {
	if _, ok := kv.Get(namespace, key); !ok {
		return nil
	}
	return kv.change(namespace, func(m map[string]string) { delete(m, key) }, 0)
}

// change applies fn to a namespace. A file of more than most bytes is refused; 0 is no limit.
func (kv *KV) change(namespace string, fn func(map[string]string), most int) error {
	kv.writing.Lock()
	defer kv.writing.Unlock()
	kv.mu.RLock()
	next := maps.Clone(kv.table)
	kv.mu.RUnlock()
	m := maps.Clone(next[namespace])
	if m == nil {
		m = map[string]string{}
	}
	fn(m)
	next[namespace] = m
	b, err := fastjson.MarshalPretty(kvFile{next})
	if err != nil {
		return err
	}
	if most > 0 && len(b) > most {
		return fmt.Errorf("the key-value configuration would have %d bytes, %d are allowed", len(b), most)
	}
	if err := statefile.Write(kv.fsys, kv.path, b); err != nil {
		return err
	}
	kv.mu.Lock()
	kv.table = next
	kv.mu.Unlock()
	return nil
}
