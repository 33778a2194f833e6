package store

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// manifest is what a Java store's listing says: see testdata/golden/README.md.
type manifest struct {
	AbortPresent bool
	JavaLoad     struct {
		LoadOk                                 bool
		CommitLogMinOffset, CommitLogMaxOffset int64
	}
	Queues []struct {
		Topic     string
		QueueID   int32
		CqType    string
		MinOffset int64
		MaxOffset int64
		Units     [][]int64
	}
	IndexQueries []struct {
		Topic, Key      string
		PhysicalOffsets []int64
	}
	TimeQueries []struct {
		Topic                    string
		QueueID                  int32
		Timestamp                int64
		Lower, Upper, LowerPlus1 int64
	}
	MessageCount int
	Messages     []struct {
		Topic          string
		QueueID        int32
		QueueOffset    int64
		PhysicalOffset int64
		StoreSize      int32
		SysFlag        int32
		BodyCRC        uint32
		StoreTimestamp int64
		Properties     map[string]string
		BodyLen        int
		BodySha256     string
	}
}

// goldenDir unpacks testdata/golden/name.tar.gz into a temporary folder and returns the store folder.
func goldenDir(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(filepath.Join("testdata", "golden", name+".tar.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	tr := tar.NewReader(z)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.FileInfo().IsDir() {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		out, err := os.Create(path)
		require.NoError(t, err)
		require.NoError(t, sparseCopy(out, tr))
		require.NoError(t, out.Truncate(h.Size))
		require.NoError(t, out.Close())
	}
	return filepath.Join(dir, "store")
}

// sparseCopy copies without writing pages of zeros, so that a 38 MB timer wheel stays a hole.
func sparseCopy(out *os.File, in io.Reader) error {
	buf := make([]byte, 64<<10)
	zero := make([]byte, len(buf))
	for off := int64(0); ; {
		n, err := io.ReadFull(in, buf)
		if n > 0 && !bytes.Equal(buf[:n], zero[:n]) {
			if _, err := out.WriteAt(buf[:n], off); err != nil {
				return err
			}
		}
		off += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func goldenManifest(t testing.TB, name string) *manifest {
	t.Helper()
	base := filepath.Join("testdata", "golden", name)
	data, err := os.ReadFile(base + ".json")
	if err != nil {
		f, err := os.Open(base + ".json.gz")
		require.NoError(t, err)
		defer f.Close()
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		data, err = io.ReadAll(z)
		require.NoError(t, err)
	}
	m := new(manifest)
	require.NoError(t, json.Unmarshal(data, m))
	return m
}

// goldenConfig is the configuration of the brokers that wrote the golden stores.
func goldenConfig(t testing.TB, name, dir string) Config {
	t.Helper()
	c := Defaults()
	c.StorePathRootDir = dir
	c.MappedFileSizeConsumeQueue = 6000
	c.MaxIndexNum, c.MaxHashSlotNum = 4000, 1000
	c.MaxMessageSize = 65536
	c.MappedFileSizeCommitLog = 1 << 20
	files, err := os.ReadDir(filepath.Join(dir, "commitlog"))
	require.NoError(t, err)
	for _, f := range files {
		i, err := f.Info()
		require.NoError(t, err)
		c.MappedFileSizeCommitLog = i.Size()
	}
	c.DiskMaxUsedSpaceRatio, c.FileReservedTime = 95, 1<<20
	return c
}

// fileSizes lists the files below dir with their lengths, but not those of this store's own folder.
func fileSizes(t testing.TB, dir string, under ...string) map[string]int64 {
	t.Helper()
	out := make(map[string]int64)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		for _, u := range under {
			if strings.HasPrefix(filepath.ToSlash(rel), u+"/") {
				out[filepath.ToSlash(rel)] = i.Size()
			}
		}
		return nil
	})
	require.NoError(t, err)
	return out
}
