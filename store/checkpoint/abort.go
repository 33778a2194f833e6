package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/epochmq/epochmq/store/mappedfile"
)

// The abort file exists while a broker runs: found at a start, the last run did not end in order.

// CreateAbort writes the abort file, durably; its content is the process id.
func CreateAbort(fsys mappedfile.FS, path string, pid int) error {
	if err := fsys.WriteFile(path, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("create abort file: %w", err)
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// AbortExists reports whether the last run did not end in order.
func AbortExists(fsys mappedfile.FS, path string) (bool, error) {
	_, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// RemoveAbort deletes the abort file, durably. Everything else must be durable before: a Java broker that finds no abort
// file builds nothing again.
func RemoveAbort(fsys mappedfile.FS, path string) error {
	err := fsys.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove abort file: %w", err)
	}
	return fsys.SyncDir(filepath.Dir(path))
}
