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

// Checked is the result of a layer's last check, which reads the whole layer and compares it with its digests.
type Checked struct {
	At     time.Time
	Damage string // empty if undamaged
}

// checks caches these results. They are stored in a file, so that a scrub continues where the last daemon
// stopped. If the file is lost or damaged, the layers are read again.
type checks struct {
	mu    sync.Mutex // guards the fields below
	by    map[layer.ID]Checked
	saved time.Time
	// noVerity is set once the file system has reported that it lacks fs-verity.
	noVerity bool
	verity   func(*os.File) error // fsverity.Enable, replaced by tests
}

const (
	checkedFile     = "checked.json"
	checkedFormat   = 1
	maxCheckedBytes = 64 << 20
	// saveEvery limits how often the file is written, and the work that a scrub repeats after a crash.
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
	b, err := durable.ReadFile(s.folder.path(checkedFile), maxCheckedBytes)
	if err != nil {
		return
	}
	if by, err := decodeChecked(b); err == nil {
		s.checks.by = by
	}
}

// Checked returns a layer's last check, or false if it was never checked.
func (s *Store) Checked(id layer.ID) (Checked, bool) {
	s.checks.mu.Lock()
	defer s.checks.mu.Unlock()
	c, ok := s.checks.by[id]
	return c, ok
}

// SetChecked stores the result of a layer's check. A change of the damage is saved immediately, a new time alone
// a little later.
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

// SaveChecked saves the results of SetChecked. It drops layers that no longer exist.
func (s *Store) SaveChecked() error {
	unlock, err := s.folder.lock() // all processes use the same temporary name
	if err != nil {
		return err
	}
	defer unlock()
	s.checks.mu.Lock() // always locked after the store's lock
	defer s.checks.mu.Unlock()
	maps.DeleteFunc(s.checks.by, func(id layer.ID, _ Checked) bool {
		_, err := os.Lstat(s.folder.layerPath(id))
		return errors.Is(err, fs.ErrNotExist)
	})
	b, err := encodeChecked(s.checks.by)
	if err != nil {
		return err
	}
	s.checks.saved = time.Now()
	if _, err := durable.PutFiles(s.folder.dir, ".new-", []durable.File{{Name: checkedFile, Content: b}}); err != nil {
		return fmt.Errorf("record checked layers: %w", err)
	}
	return nil
}

// Check reads a whole layer, compares it with its digests, and stores the result with the time. pause is called
// before each chunk with its size, and may block; an error from it ends the check. If the layer has no digests,
// Check returns ErrUnhashed.
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

// damageText describes the first damage and counts the others.
func damageText(all []Damage) string {
	text := DamageText(all[0].Damage)
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more places", more)
	}
	return text
}

// DamageText describes the location and kind of a damage.
func DamageText(d layer.Damage) string {
	if d.Length == 0 { // the whole layer
		return d.Detail
	}
	return fmt.Sprintf("bytes %d to %d: %s", d.Offset, d.Offset+d.Length-1, d.Detail)
}

// ErrUnhashed: the layer has no digests yet.
var ErrUnhashed = errors.New("layer has no digests yet")

// maxHoles limits the ratio of a protected layer's length to its allocated size. The kernel hashes holes as well,
// and the base of a disk consists mostly of holes.
const maxHoles = 4

// protect makes the kernel verify a layer on each read from now on, if the file system can. This hashes the file
// once more. So a check does it, which is slow and in the background, not the creation of a snapshot. If the
// store has no support, it is tried only once. If another process still has the layer open for writing, such as
// the VM whose memory it was, the next check tries again.
func (s *Store) protect(ctx context.Context, id layer.ID) {
	s.checks.mu.Lock()
	skip, enable := s.checks.noVerity, s.checks.verity
	s.checks.mu.Unlock()
	if skip {
		return
	}
	f, err := durable.Open(s.folder.layerPath(id))
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
	case <-ctx.Done(): // only the end of the process can end the system call, and that is probably imminent
	}
}
