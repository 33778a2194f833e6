package route

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/epochmq/epochmq/internal/statefile"
)

// Identity is the id that a controller gave to one store folder. Format: docs/formats/identity.md.
type Identity struct {
	Cluster, Name string
	ID            int64  // 0: none yet
	Code          string // registerCheckCode with which the id was applied for; empty: not known
	Applied       bool   // the controller has confirmed it
}

// identityFiles keeps an Identity in a store's folder: the claim while it is being applied for, the identity afterwards,
// and the check code beside it, so that a claim can be repeated.
type identityFiles struct {
	fs   statefile.FS
	root string
}

const (
	identityFile = "brokerIdentity"
	claimFile    = "brokerIdentity-temp"
	codeFile     = "brokerIdentity-code"
)

func (f identityFiles) path(name string) string { return filepath.Join(f.root, name) }

// load reads the identity, or the claim when there is none. An identity of another cluster or name is refused: the folder
// belongs to another broker, or the configuration was changed.
func (f identityFiles) load(cluster, name string) (id Identity, err error) {
	read := func(file string, fields int, set func(list []string) error) (bool, error) {
		return statefile.Load(f.fs, f.path(file), func(b []byte) error {
			list := strings.Split(string(bytes.TrimRight(b, "\r\n")), "#")
			if len(list) != fields {
				return fmt.Errorf("%s has %d fields, not %d", file, len(list), fields)
			}
			return set(list)
		})
	}
	number := func(list []string) (err error) {
		id.Cluster, id.Name = list[0], list[1]
		if id.ID, err = strconv.ParseInt(list[2], 10, 64); err == nil && id.ID <= 0 {
			err = fmt.Errorf("id %d is not positive", id.ID)
		}
		return err
	}
	found, err := read(identityFile, 3, number)
	if err != nil {
		return Identity{}, fmt.Errorf("the identity of this broker is damaged, restore it or start with an empty store: %w", err)
	}
	if found {
		id.Applied = true
		if _, err := statefile.Load(f.fs, f.path(codeFile), func(b []byte) error {
			id.Code = string(bytes.TrimRight(b, "\r\n"))
			return nil
		}); err != nil {
			return Identity{}, err
		}
	} else if _, err = read(claimFile, 4, func(list []string) error {
		id.Code = list[3]
		return number(list)
	}); err != nil {
		id = Identity{} // an id is burnt, nothing else
	}
	if id.ID != 0 && (id.Cluster != cluster || id.Name != name) {
		return Identity{}, fmt.Errorf("the store in %s belongs to broker %s of cluster %s, the configuration says broker %s of cluster %s: fix brokerName and brokerClusterName, or use another store",
			f.root, id.Name, id.Cluster, name, cluster)
	}
	return id, nil
}

// claim makes it durable that an id is being applied for.
func (f identityFiles) claim(id Identity) error {
	return statefile.Write(f.fs, f.path(claimFile), fmt.Appendf(nil, "%s#%s#%d#%s", id.Cluster, id.Name, id.ID, id.Code))
}

// confirm makes the identity durable, and only then drops the claim.
func (f identityFiles) confirm(id Identity) error {
	if id.Code != "" {
		if err := statefile.Write(f.fs, f.path(codeFile), []byte(id.Code)); err != nil {
			return err
		}
	}
	if err := statefile.Write(f.fs, f.path(identityFile), fmt.Appendf(nil, "%s#%s#%d", id.Cluster, id.Name, id.ID)); err != nil {
		return err
	}
	return f.dropClaim()
}

// dropClaim forgets an id that was refused, or that is confirmed.
func (f identityFiles) dropClaim() error {
	var errs []error
	for _, name := range []string{claimFile + ".bak", claimFile} {
		if err := f.fs.Remove(f.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, f.fs.SyncDir(f.root))...)
}
