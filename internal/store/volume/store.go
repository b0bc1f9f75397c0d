package volume

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Sentinels for callers to branch on.
var (
	// ErrNotFound: the tenant has no volume with this name.
	ErrNotFound = errors.New("no such volume")
	// ErrExists: the tenant has a volume with this name.
	ErrExists = errors.New("the volume exists already")
	// ErrHeld: a sandbox has the volume.
	ErrHeld = errors.New("the volume is in use")
	// ErrLimit: the tenant has as many volumes, or as large ones, as it may have.
	ErrLimit = errors.New("too many volumes")
	// ErrInvalid: a name or size is invalid.
	ErrInvalid = errors.New("invalid volume")
)

// Limits of each tenant.
const (
	MaxPerOwner = 100
	// MaxOwnerBytes limits the sum of the sizes: what a tenant's volumes may occupy if it fills them.
	MaxOwnerBytes = 4 << 40
)

const (
	draftPrefix = ".new-"
	deadPrefix  = ".old-"
	pinPrefix   = "volume."
)

// Pins keeps layers for a volume.
type Pins interface {
	Pin(name string, ids ...layer.ID) error
	Unpin(name string) error
	Pins() (map[string][]layer.ID, error)
}

// Config configures a Store.
type Config struct {
	Dir  string           // the store owns it
	Pins Pins             // of the layer store
	Now  func() time.Time // wall clock
	Log  *slog.Logger     // receives problems that are survived
}

// Store is a directory of volumes. One process has it open. It is safe for concurrent use.
type Store struct {
	cfg Config

	// mu guards the fields below. It is held while records are written: requests about volumes are rare, and
	// each takes a few milliseconds.
	mu   sync.Mutex
	all  map[string]*record // by id
	held map[string]string  // sandbox by the id of the volume that it has
	// unrecorded holds the present stacks of held volumes whose records could not be written, as on a full disk.
	unrecorded map[string]Stack
}

// Open opens the store and removes what an interrupted operation left.
func Open(c Config) (*Store, error) {
	s := &Store{cfg: c, all: map[string]*record{}, held: map[string]string{}, unrecorded: map[string]Stack{}}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the volumes: %w", err)
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the volumes: %w", err)
	}
	for _, en := range entries {
		dir := filepath.Join(c.Dir, en.Name())
		if strings.HasPrefix(en.Name(), draftPrefix) || strings.HasPrefix(en.Name(), deadPrefix) {
			os.RemoveAll(dir)
			continue
		}
		if !idPattern.MatchString(en.Name()) {
			continue
		}
		r, err := readRecord(dir)
		if err != nil { // its files stay for a person
			c.Log.Error("a volume is not listed: its record cannot be read", "volume", en.Name(), "err", err)
			continue
		}
		s.all[r.ID] = r
	}
	return s, s.settlePins()
}

// settlePins removes the pins of volumes that are gone.
func (s *Store) settlePins() error {
	pins, err := s.cfg.Pins.Pins()
	if err != nil {
		return fmt.Errorf("open the volumes: %w", err)
	}
	for name := range pins {
		id, ours := strings.CutPrefix(name, pinPrefix)
		if !ours {
			continue
		}
		if _, err := os.Lstat(s.dir(id)); os.IsNotExist(err) {
			if err := s.cfg.Pins.Unpin(name); err != nil {
				return fmt.Errorf("open the volumes: %w", err)
			}
		}
	}
	return nil
}

func (s *Store) dir(id string) string { return filepath.Join(s.cfg.Dir, id) }

// path returns the path of a volume's file.
func (s *Store) path(id, file string) string { return filepath.Join(s.dir(id), file) }

func newID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return "vol-" + hex.EncodeToString(b[:])
}

// Create makes an empty volume.
func (s *Store) Create(owner, name string, bytes int64) (Volume, error) {
	bytes = (bytes + layer.BlockSize - 1) / layer.BlockSize * layer.BlockSize
	if bytes < MinBytes || bytes > MaxBytes {
		return Volume{}, fmt.Errorf("%w: its size is %d bytes, want %d to %d", ErrInvalid, bytes, int64(MinBytes),
			int64(MaxBytes))
	}
	r := &record{Bytes: bytes}
	return s.add(r, owner, name, func(dir string) error {
		f, err := os.OpenFile(filepath.Join(dir, r.Files[0]), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(Mkfs(f, bytes), f.Sync(), f.Close())
	})
}

// add makes a volume of a record without a name. fill makes its files; the record has one file.
func (s *Store) add(r *record, owner, name string, fill func(dir string) error) (Volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addLocked(r, owner, name, fill)
}

func (s *Store) addLocked(r *record, owner, name string, fill func(dir string) error) (Volume, error) {
	if err := s.admitLocked(owner, name, r.Bytes); err != nil {
		return Volume{}, err
	}
	r.Format, r.ID, r.Owner, r.Name, r.Created = Format, newID(), owner, name, s.cfg.Now().UnixMilli()
	r.Files = append(r.Files, r.newFile())
	draft := filepath.Join(s.cfg.Dir, draftPrefix+r.ID)
	if err := os.Mkdir(draft, 0o700); err != nil {
		return Volume{}, fmt.Errorf("create volume %s: %w", name, err)
	}
	err := s.place(r, draft, fill)
	if err != nil {
		s.withdraw(r, draft)
		return Volume{}, fmt.Errorf("create volume %s: %w", name, err)
	}
	s.all[r.ID] = r
	return r.volume(s.dir(r.ID), ""), nil
}

// place makes the volume exist.
func (s *Store) place(r *record, draft string, fill func(dir string) error) error {
	err := fill(draft)
	if err == nil {
		err = passed("record", func() error { return r.write(draft) })
	}
	if err == nil && len(r.Backing) > 0 {
		err = passed("pin", func() error { return s.cfg.Pins.Pin(pinPrefix+r.ID, r.Backing...) })
	}
	if err == nil {
		err = passed("rename", func() error { return durable.RenameNew(draft, s.dir(r.ID)) })
	}
	if err == nil {
		err = passed("sync", func() error { return durable.SyncDir(s.cfg.Dir) })
	}
	return err
}

// passed runs a step of an operation, unless a test makes it fail.
func passed(step failpoint.Step, do func() error) error {
	if err := failpoint.At(failpoint.VolumePrefix + step); err != nil {
		return err
	}
	return do()
}

// withdraw removes what a failed creation has made.
func (s *Store) withdraw(r *record, draft string) {
	os.RemoveAll(draft)
	os.RemoveAll(s.dir(r.ID)) // the id is new, so this is the draft after its rename
	if len(r.Backing) == 0 {
		return
	}
	pins, err := s.cfg.Pins.Pins()
	if _, pinned := pins[pinPrefix+r.ID]; err == nil && pinned {
		err = s.cfg.Pins.Unpin(pinPrefix + r.ID)
	}
	if err != nil {
		s.cfg.Log.Warn("unpin the layers of a volume that could not be made", "volume", r.ID, "err", err)
	}
}

func (s *Store) admitLocked(owner, name string, bytes int64) error {
	if !NamePattern.MatchString(name) {
		return fmt.Errorf("%w: the name %.70q is not 1 to 63 of letters, digits, - and _, beginning with a letter or digit",
			ErrInvalid, name)
	}
	if !tenantPattern.MatchString(owner) {
		return fmt.Errorf("%w: owner %.70q", ErrInvalid, owner)
	}
	n, sum := 0, bytes
	for _, r := range s.all {
		if r.Owner != owner {
			continue
		}
		if r.Name == name {
			return fmt.Errorf("%w: %s", ErrExists, name)
		}
		n, sum = n+1, sum+r.Bytes
	}
	if n >= MaxPerOwner {
		return fmt.Errorf("%w: %d, remove some", ErrLimit, n)
	}
	if sum > MaxOwnerBytes {
		return fmt.Errorf("%w: their sizes would be %d GiB together, at most %d are allowed", ErrLimit, sum>>30,
			int64(MaxOwnerBytes)>>30)
	}
	return nil
}

func (s *Store) findLocked(owner, name string) (*record, error) {
	for _, r := range s.all {
		if r.Owner == owner && (r.Name == name || r.ID == name) {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%w: %.70s", ErrNotFound, name)
}

// Get returns a tenant's volume by its name or id.
func (s *Store) Get(owner, name string) (Volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findLocked(owner, name)
	if err != nil {
		return Volume{}, err
	}
	return r.volume(s.dir(r.ID), s.held[r.ID]), nil
}

// List returns a tenant's volumes by name.
func (s *Store) List(owner string) []Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Volume{}
	for _, r := range s.all {
		if r.Owner == owner {
			out = append(out, r.volume(s.dir(r.ID), s.held[r.ID]))
		}
	}
	slices.SortFunc(out, func(a, b Volume) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return out
}

// Remove removes a volume that no sandbox has. Clones keep their content.
func (s *Store) Remove(owner, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findLocked(owner, name)
	if err != nil {
		return err
	}
	if by := s.held[r.ID]; by != "" {
		return fmt.Errorf("%w: sandbox %s has volume %s", ErrHeld, by, r.Name)
	}
	dead := filepath.Join(s.cfg.Dir, deadPrefix+r.ID)
	if err := passed("remove.rename", func() error { return os.Rename(s.dir(r.ID), dead) }); err != nil {
		return fmt.Errorf("remove volume %s: %w", r.Name, err)
	}
	delete(s.all, r.ID)
	err = passed("remove.sync", func() error { return durable.SyncDir(s.cfg.Dir) })
	if len(r.Backing) > 0 {
		if err := passed("remove.unpin", func() error { return s.cfg.Pins.Unpin(pinPrefix + r.ID) }); err != nil {
			s.cfg.Log.Warn("unpin a volume's layers", "volume", r.ID, "err", err)
		}
	}
	return errors.Join(err, passed("remove.files", func() error { return os.RemoveAll(dead) }))
}
