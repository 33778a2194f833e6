// Package statefile keeps small state files with a backup copy, as RocketMQ's configuration files are kept: PATH and PATH.bak.
//
// Write replaces a file so that at every instant, also after a power loss, PATH or PATH.bak is complete. Load reads whichever is good and
// never deletes anything. The broker's tables and the name server's key-value store use it.
package statefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FS is what the package needs of a file system. OS is the real one.
type FS interface {
	WriteFile(name string, data []byte, perm fs.FileMode) error // create or replace, then make durable
	ReadFile(name string) ([]byte, error)
	Rename(from, to string) error
	Link(from, to string) error
	Remove(name string) error
	SyncDir(name string) error
	MkdirAll(name string, perm fs.FileMode) error
}

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

func (osFS) WriteFile(name string, data []byte, perm fs.FileMode) (err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if n, err := f.Write(data); err != nil {
		return err
	} else if n < len(data) {
		return io.ErrShortWrite
	}
	return f.Sync()
}

func (osFS) ReadFile(name string) ([]byte, error)         { return os.ReadFile(name) }
func (osFS) Rename(from, to string) error                 { return os.Rename(from, to) }
func (osFS) Link(from, to string) error                   { return os.Link(from, to) }
func (osFS) Remove(name string) error                     { return os.Remove(name) }
func (osFS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }
func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// Write makes data the content of path. The content before it becomes path.bak. It returns after everything is on disk; on an error
// path still holds a complete content, old or new. The folder is created when it is missing.
func Write(fsys FS, path string, data []byte) error {
	dir := filepath.Dir(path)
	tmp, bak, spare := path+".tmp", path+".bak", path+".bak.tmp"
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fsys.WriteFile(tmp, data, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fsys.Remove(spare); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: %w", path, err)
	}
	// A second name for the old content, then a rename over the old backup: both steps leave a complete backup.
	switch err := fsys.Link(path, spare); {
	case err == nil:
		if err := fsys.Rename(spare, bak); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		// Renaming one name of a file over another name of the same file leaves both.
		if err := fsys.Remove(spare); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write %s: %w", path, err)
		}
	case errors.Is(err, fs.ErrNotExist):
	default:
		return fmt.Errorf("keep the old %s: %w", path, err)
	}
	if err := fsys.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Load hands the content of path to parse, or that of path.bak when path is missing, empty or refused by parse. found is false when
// neither file exists. When one exists and none parses the error names both; nothing is deleted, so that a human can look.
func Load(fsys FS, path string, parse func([]byte) error) (found bool, err error) {
	first, missing := try(fsys, path, parse)
	if first == nil {
		return true, nil
	}
	second, bakMissing := try(fsys, path+".bak", parse)
	if second == nil {
		return true, nil
	}
	if missing && bakMissing {
		return false, nil
	}
	return false, fmt.Errorf("neither %s nor its .bak can be read; repair one of them, or move both away to start empty: %w; %w", path, first, second)
}

func try(fsys FS, path string, parse func([]byte) error) (err error, missing bool) {
	data, err := fsys.ReadFile(path)
	if err != nil {
		return err, errors.Is(err, fs.ErrNotExist)
	}
	if len(data) == 0 {
		return fmt.Errorf("%s is empty", path), false
	}
	if err := parse(data); err != nil {
		return fmt.Errorf("%s: %w", path, err), false
	}
	return nil, false
}
