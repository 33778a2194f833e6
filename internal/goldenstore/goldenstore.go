// Package goldenstore unpacks the stores of a real RocketMQ that tests compare with. Only tests import it.
//
// Origin and content: store/testdata/golden/README.md.
package goldenstore

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Sizes that the brokers of all golden stores were configured with.
const (
	QueueFileSize = 6000
	IndexSlots    = 1000
	IndexEntries  = 4000
)

// Manifest is what was noted of a store when it was captured.
type Manifest struct {
	AbortPresent bool
	Checkpoint   struct {
		PhysicMsgTimestamp, LogicsMsgTimestamp, IndexMsgTimestamp, MasterFlushedOffset, ConfirmPhyOffset int64
	}
	JavaLoad struct {
		CommitLogMinOffset, CommitLogMaxOffset int64
	}
	Queues []struct {
		Topic                string
		QueueID              int32
		MinOffset, MaxOffset int64
		Units                [][]int64 // queue offset, log offset, size, tags code
	}
	IndexQueries []struct {
		Topic, Key      string
		PhysicalOffsets []int64
	}
	TimeQueries []struct {
		Topic                               string
		QueueID                             int32
		Timestamp, Lower, Upper, LowerPlus1 int64
	}
	Messages []struct {
		Topic          string
		QueueID        int32
		QueueOffset    int64
		PhysicalOffset int64
		StoreSize      int32
		SysFlag        int32
		StoreTimestamp int64
		Properties     map[string]string
	}
}

func folder() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "store", "testdata", "golden")
}

// Unpack writes a store to a temporary folder and returns its root.
func Unpack(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unpack(name, dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "store")
}

func unpack(name, dir string) error {
	f, err := os.Open(filepath.Join(folder(), name+".tar.gz"))
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = extract(path, tr, h.Size)
		}
		if err != nil {
			return err
		}
	}
}

// extract leaves holes where the archive has zeros, so that a large sparse file stays small.
func extract(path string, in io.Reader, size int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	buf, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); err == nil; {
		var n int
		n, err = io.ReadFull(in, buf)
		if n > 0 && !bytes.Equal(buf[:n], zero[:n]) {
			if _, werr := out.WriteAt(buf[:n], off); werr != nil {
				err = werr
			}
		}
		off += int64(n)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = out.Truncate(size)
	}
	return errors.Join(err, out.Close())
}

// Read returns the manifest of a store.
func Read(t testing.TB, name string) *Manifest {
	t.Helper()
	m := new(Manifest)
	if err := read(name, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func read(name string, m *Manifest) error {
	f, err := os.Open(filepath.Join(folder(), name+".json.gz"))
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	return json.NewDecoder(z).Decode(m)
}
