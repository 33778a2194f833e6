package store

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/epochmq/epochmq/store/consumequeue"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// refuse looks for data of a Java broker that this store does not read and answers with an *UnsupportedError.
func refuse(fsys mappedfile.FS, root string) error {
	queues := filepath.Join(root, "consumequeue")
	var rocks *consumequeue.UnsupportedError
	if err := consumequeue.CheckFolder(fsys, queues); errors.As(err, &rocks) {
		return &UnsupportedError{What: "a folder of RocksDB queues (storeType=defaultRocksDB)", Path: queues, Hint: rocksHint}
	} else if err != nil {
		return err
	}
	rdb := filepath.Join(root, "config", "rdb")
	if _, err := fsys.Stat(rdb); err == nil {
		return &UnsupportedError{What: "configuration in RocksDB (configManagerVersion=v2)", Path: rdb, Hint: rocksConfigHint}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := fsys.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || !(strings.HasPrefix(e.Name(), "raft-") || strings.HasPrefix(e.Name(), "dledger-")) {
			continue
		}
		path := filepath.Join(root, e.Name())
		if _, err := fsys.Stat(filepath.Join(path, "data")); err == nil {
			return &UnsupportedError{What: "a DLedger log (enableDLegerCommitLog=true)", Path: path, Hint: dledgerHint}
		}
	}
	return nil
}
