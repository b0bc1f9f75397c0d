package secrets

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/sys/durable"
)

// Config configures a Store.
type Config struct {
	// Dir is the directory of the files. The store creates it.
	Dir string
	// Key encrypts the values. If nil, every call returns ErrNoKey.
	Key *Key
	// Now returns the time. If nil, it is time.Now.
	Now func() time.Time
	// Log receives the names of unreadable files. If nil, they are not logged.
	Log *slog.Logger
}

// Store holds the secrets of all tenants, each in a file of its own. Its methods are safe for concurrent use. Only
// one process may use a directory at a time.
type Store struct {
	cfg Config

	mu  sync.Mutex            // guards the fields below; held while a file is written
	all map[ownedName]*Secret // without values
	// follow are called without mu after a change of a tenant's secrets.
	follow []func(tenant string)
}

type ownedName struct{ tenant, name string }

// leftoverAge is the age of an unfinished file from which it is a leftover. A younger one may be of a daemon that
// still runs: the store is opened before the engine holds the data directory.
const leftoverAge = time.Minute

// Names of directories and files. No tenant's directory can be the operator's.
const (
	operatorDir  = "operator"
	tenantPrefix = "tenant-"
	suffix       = ".json"
	unfinished   = ".new" // of package durable
)

// Open opens the store. A file that was damaged or exchanged is listed with the reason, and its value is refused.
// Open returns an error if a file is encrypted with another key, because the key is then the mistake.
func Open(cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg, all: map[ownedName]*Secret{}}
	if cfg.Key == nil {
		return s, nil
	}
	if err := makeDir(cfg.Dir); err != nil {
		return nil, err
	}
	dirs, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, d := range dirs {
		if tenant, ok := tenantOf(d.Name()); ok {
			if err := s.openTenant(tenant); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// Off returns a store without a key.
func Off() *Store { return &Store{} }

func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

func dirOf(tenant string) string {
	if tenant == "" {
		return operatorDir
	}
	return tenantPrefix + tenant
}

func tenantOf(dir string) (tenant string, ok bool) {
	if dir == operatorDir {
		return "", true
	}
	tenant, ok = strings.CutPrefix(dir, tenantPrefix)
	return tenant, ok && tenant != "" && tenantPattern.MatchString(tenant)
}

func (s *Store) path(of ownedName) string {
	return filepath.Join(s.cfg.Dir, dirOf(of.tenant), of.name+suffix)
}

func (s *Store) openTenant(tenant string) error {
	dir := filepath.Join(s.cfg.Dir, dirOf(tenant))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix+unfinished) { // of a Set without an answer
			if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > leftoverAge {
				os.Remove(filepath.Join(dir, e.Name()))
			}
			continue
		}
		name, ours := strings.CutSuffix(e.Name(), suffix)
		if !ours || CheckName(name) != nil {
			continue
		}
		of := ownedName{tenant, name}
		found, _, err := s.read(of)
		if errors.Is(err, ErrOtherKey) {
			return fmt.Errorf("secret %s in %s: %w", name, dir, err)
		}
		if err != nil {
			s.cfg.Log.Error("a secret cannot be read: set it again or remove it", "tenant", tenant, "secret", name, "err", err)
			found = Secret{Tenant: tenant, Name: name, Damage: err.Error()}
		}
		s.all[of] = &found
	}
	return nil
}

// read reads and decrypts a file. It checks that the file belongs to its place.
func (s *Store) read(of ownedName) (Secret, []byte, error) {
	b, err := durable.ReadFile(s.path(of), maxFile)
	if err != nil {
		return Secret{}, nil, err
	}
	f, err := decode(b)
	if err != nil {
		return Secret{}, nil, err
	}
	if f.Tenant != of.tenant || f.Name != of.name {
		return Secret{}, nil, errors.New("it is the file of another secret")
	}
	value, err := f.open(s.cfg.Key)
	return f.secret(), value, err
}

// Set sets a secret to a new value. A value equal to the current one keeps the version, because copies of it are
// still valid.
func (s *Store) Set(c Change) (Secret, error) {
	if s.cfg.Key == nil {
		return Secret{}, ErrNoKey
	}
	if err := c.validate(); err != nil {
		return Secret{}, err
	}
	out, changed, err := s.set(c)
	if changed {
		s.tell(c.Tenant)
	}
	return out, err
}

func (s *Store) set(c Change) (_ Secret, changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, now := ownedName{c.Tenant, c.Name}, s.cfg.Now()
	next := Secret{Tenant: c.Tenant, Name: c.Name, Version: 1, Created: now, Updated: now, Metadata: c.Metadata}
	switch was := s.all[of]; {
	case was != nil && c.New:
		return Secret{}, false, fmt.Errorf("secret %s %w", c.Name, ErrExists)
	case was == nil && c.Keep:
		return Secret{}, false, missing(c.Name)
	case was == nil && s.countLocked(c.Tenant) >= MaxPerOwner:
		return Secret{}, false, fmt.Errorf("%w, %d: remove some", ErrFull, MaxPerOwner)
	case was != nil && was.Damage != "" && c.Keep:
		return Secret{}, false, fmt.Errorf("secret %s %w: %s", c.Name, ErrUnreadable, was.Damage)
	case was == nil || was.Damage != "": // its old version is unknown
		next.ID = newID()
	default:
		next.ID, next.Version, next.Created = was.ID, was.Version+1, was.Created
		if c.Metadata == nil {
			next.Metadata = was.Metadata
		}
		_, value, err := s.read(of)
		if c.Keep && err != nil {
			return Secret{}, false, fmt.Errorf("secret %s %w: %w", c.Name, ErrUnreadable, err)
		}
		if c.Keep {
			c.Value = value
		}
		if err == nil && bytes.Equal(value, c.Value) {
			next.Version, next.Updated = was.Version, was.Updated
		}
	}
	b, err := seal(s.cfg.Key, next, c.Value)
	if err != nil {
		return Secret{}, false, err
	}
	if err := makeDir(filepath.Dir(s.path(of))); err != nil {
		return Secret{}, false, err
	}
	if err := durable.Rewrite(s.path(of), b); err != nil {
		os.Remove(s.path(of) + unfinished)
		s.reloadLocked(of)
		return Secret{}, true, fmt.Errorf("write secret %s: %w", c.Name, err)
	}
	s.all[of] = &next
	return next, true, nil
}

// reloadLocked makes the list agree with the disk after a failed write.
func (s *Store) reloadLocked(of ownedName) {
	found, _, err := s.read(of)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(s.all, of)
		return
	case err != nil:
		found = Secret{Tenant: of.tenant, Name: of.name, Damage: err.Error()}
	}
	s.all[of] = &found
}

func newID() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // never fails
	return "s" + hex.EncodeToString(b)
}

func (s *Store) countLocked(tenant string) (n int) {
	for of := range s.all {
		if of.tenant == tenant {
			n++
		}
	}
	return n
}

// Remove removes a secret. Unused blocks of the disk may still hold the encrypted value.
func (s *Store) Remove(tenant, name string) (Secret, error) {
	if s.cfg.Key == nil {
		return Secret{}, ErrNoKey
	}
	was, err := s.remove(ownedName{tenant, name})
	if err == nil {
		s.tell(tenant)
	}
	return was, err
}

func (s *Store) remove(of ownedName) (Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.all[of]
	if was == nil {
		return Secret{}, missing(of.name)
	}
	err := os.Remove(s.path(of))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Secret{}, fmt.Errorf("remove secret %s: %w", of.name, err)
	}
	if err := durable.SyncDir(filepath.Dir(s.path(of))); err != nil {
		s.reloadLocked(of)
		return Secret{}, fmt.Errorf("remove secret %s: %w", of.name, err)
	}
	delete(s.all, of)
	return *was, nil
}

func missing(name string) error { return fmt.Errorf("secret %.80s %w", name, ErrNotFound) }

// Get describes a secret.
func (s *Store) Get(tenant, name string) (Secret, error) {
	if s.cfg.Key == nil {
		return Secret{}, ErrNoKey
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.all[ownedName{tenant, name}]; found != nil {
		return *found, nil
	}
	return Secret{}, missing(name)
}

// List describes a tenant's secrets, by name.
func (s *Store) List(tenant string) ([]Secret, error) {
	if s.cfg.Key == nil {
		return nil, ErrNoKey
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Secret{}
	for of, found := range s.all {
		if of.tenant == tenant {
			out = append(out, *found)
		}
	}
	slices.SortFunc(out, func(a, b Secret) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Value returns a secret and its current value.
func (s *Store) Value(tenant, name string) (Secret, []byte, error) {
	if s.cfg.Key == nil {
		return Secret{}, nil, ErrNoKey
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := ownedName{tenant, name}
	if s.all[of] == nil {
		return Secret{}, nil, missing(name)
	}
	found, value, err := s.read(of)
	if err != nil {
		return Secret{}, nil, fmt.Errorf("secret %s %w: %w", name, ErrUnreadable, err)
	}
	return found, value, nil
}

// Void reports whether a version of a secret is no longer its current one, because it was rotated or removed. It
// reports false if that is unknown: without a key, or while a file cannot be read.
func (s *Store) Void(id string, version int) bool {
	if s.cfg.Key == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unknown := false
	for _, found := range s.all {
		if found.ID == id {
			return found.Version != version
		}
		unknown = unknown || found.Damage != ""
	}
	return !unknown
}

// Follow calls told after each change of a tenant's secrets. Calls may overlap.
func (s *Store) Follow(told func(tenant string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow = append(s.follow, told)
}

func (s *Store) tell(tenant string) {
	s.mu.Lock()
	all := slices.Clone(s.follow)
	s.mu.Unlock()
	for _, told := range all {
		told(tenant)
	}
}
