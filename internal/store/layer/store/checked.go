package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/fsverity"
)

// Checked is when a layer was last read whole and compared with its digests, and
// what was wrong with it then.
type Checked struct {
	At     time.Time
	Damage string // empty: nothing
}

// checks are the store's memory of that. It is kept in a file of the store, so that a
// scrub goes on where the last daemon was. The file is a convenience: one that is
// lost or damaged costs reading the layers again.
type checks struct {
	mu    sync.Mutex // guards what follows
	by    map[layer.ID]Checked
	saved time.Time
	// noVerity is set once the file system has said that it has no fs-verity.
	noVerity bool
	verity   func(*os.File) error // fsverity.Enable; tests replace it
}

const (
	checkedFile     = "checked.json"
	checkedFormat   = 1
	maxCheckedBytes = 64 << 20
	// saveEvery bounds what a crash makes the scrub read again, and how often the file is written.
	saveEvery = 2 * time.Second
)

type checkedRecord struct {
	Format int                     `json:"format"`
	Layers map[string]checkedEntry `json:"layers"`
}

type checkedEntry struct {
	AtUnix int64  `json:"at_unix"`
	Damage string `json:"damage,omitempty"`
}

func decodeChecked(b []byte) (map[layer.ID]Checked, error) {
	var r checkedRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	if r.Format != checkedFormat {
		return nil, fmt.Errorf("has format %d, this forkd reads format %d", r.Format, checkedFormat)
	}
	by := map[layer.ID]Checked{}
	for name, c := range r.Layers {
		id, err := layer.ParseID(name)
		if err != nil {
			return nil, err
		}
		by[id] = Checked{time.Unix(c.AtUnix, 0), c.Damage}
	}
	return by, nil
}

func encodeChecked(by map[layer.ID]Checked) ([]byte, error) {
	r := checkedRecord{checkedFormat, make(map[string]checkedEntry, len(by))}
	for id, c := range by {
		r.Layers[id.String()] = checkedEntry{c.At.Unix(), c.Damage}
	}
	return json.Marshal(r)
}

func (s *Store) loadChecked() {
	s.checks.by, s.checks.verity = map[layer.ID]Checked{}, fsverity.Enable
	b, err := durable.ReadFile(s.path(checkedFile), maxCheckedBytes)
	if err != nil {
		return
	}
	if by, err := decodeChecked(b); err == nil {
		s.checks.by = by
	}
}

// Checked tells of a layer's last check; false if there was none.
func (s *Store) Checked(id layer.ID) (Checked, bool) {
	s.checks.mu.Lock()
	defer s.checks.mu.Unlock()
	c, ok := s.checks.by[id]
	return c, ok
}

// SetChecked notes what was found out of a layer. What changes is durable at once, the
// time alone a little later.
func (s *Store) SetChecked(id layer.ID, c Checked) error {
	s.checks.mu.Lock()
	before, known := s.checks.by[id]
	s.checks.by[id] = c
	due := !known && c.Damage != "" || before.Damage != c.Damage || time.Since(s.checks.saved) >= saveEvery
	s.checks.mu.Unlock()
	if !due {
		return nil
	}
	return s.SaveChecked()
}

// SaveChecked writes what SetChecked noted, without layers that are gone.
func (s *Store) SaveChecked() error {
	unlock, err := s.lock() // the file's temporary name is the same for all processes
	if err != nil {
		return err
	}
	defer unlock()
	s.checks.mu.Lock() // after the store's lock, as everywhere
	defer s.checks.mu.Unlock()
	maps.DeleteFunc(s.checks.by, func(id layer.ID, _ Checked) bool {
		_, err := os.Lstat(s.layerPath(id))
		return errors.Is(err, fs.ErrNotExist)
	})
	b, err := encodeChecked(s.checks.by)
	if err != nil {
		return err
	}
	s.checks.saved = time.Now()
	if _, err := durable.PutFiles(s.dir, ".new-", []durable.File{{Name: checkedFile, Content: b}}); err != nil {
		return fmt.Errorf("note what was checked: %w", err)
	}
	return nil
}

// Check reads a layer whole, compares it with its digests, and notes what it found, with
// the time. pause is called before every chunk, of so many bytes, and may block; an error
// of it ends the check. A layer without digests is ErrUnhashed.
func (s *Store) Check(ctx context.Context, id layer.ID, now func() time.Time,
	pause func(ctx context.Context, bytes int64) error) (Checked, error) {
	v, err := s.OpenVerification(id)
	if err != nil {
		return Checked{}, err
	}
	defer v.Close()
	if len(v.found.Unhashed) > 0 {
		return Checked{}, fmt.Errorf("check layer %s: %w", id, ErrUnhashed)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var last int64
	found, err := v.Run(ctx, func(done, _ int64) {
		if err := pause(ctx, done-last); err != nil {
			cancel(err)
		}
		last = done
	})
	if err != nil {
		return Checked{}, err
	}
	c := Checked{At: now()}
	if len(found.Damaged) > 0 {
		c.Damage = damageText(found.Damaged)
	}
	if c.Damage == "" {
		s.protect(ctx, id)
	}
	return c, s.SetChecked(id, c)
}

// damageText says where a layer is damaged; of many places the first.
func damageText(all []Damage) string {
	text := DamageText(all[0].Damage)
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more places", more)
	}
	return text
}

// DamageText says where a layer is damaged, and how.
func DamageText(d layer.Damage) string {
	if d.Length == 0 { // as a whole
		return d.Detail
	}
	return fmt.Sprintf("bytes %d to %d: %s", d.Offset, d.Offset+d.Length-1, d.Detail)
}

// ErrUnhashed: the layer has no digests yet.
var ErrUnhashed = errors.New("layer has no digests yet")

// maxHoles is how many times as long as what is allocated of it a layer may be to be
// protected: the kernel hashes holes as well, and a disk's base is nearly all holes.
const maxHoles = 4

// protect has the kernel check a layer at each read from now on, where the file system
// can. That hashes the file once more, so it is done by a check, which is slow and in the
// background, and not when a snapshot is made. It is tried once for a store that cannot, and again at
// the next check of a layer that somebody has open for writing still, as the VM whose memory it was.
func (s *Store) protect(ctx context.Context, id layer.ID) {
	s.checks.mu.Lock()
	skip, enable := s.checks.noVerity, s.checks.verity
	s.checks.mu.Unlock()
	if skip {
		return
	}
	f, err := durable.Open(s.layerPath(id))
	if err != nil {
		return
	}
	if st, err := f.Stat(); err != nil || st.Size() > maxHoles*blocksOf(st) {
		f.Close()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer f.Close()
		if err := enable(f); errors.Is(err, fsverity.ErrUnsupported) {
			s.checks.mu.Lock()
			s.checks.noVerity = true
			s.checks.mu.Unlock()
		}
	}()
	select {
	case <-done:
	case <-ctx.Done(): // nothing ends the system call but the process's end, which is likely what is wanted
	}
}
