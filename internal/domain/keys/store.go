package keys

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// usedEvery is the resolution of a key's last use, and how often the file is written for it.
const usedEvery = time.Hour

// Config configures a Store.
type Config struct {
	Path string
	// Shared is the path of another file of keys, or empty. The store reads it, follows its changes, and never
	// writes it: several daemons share these keys, such as those of a cluster.
	Shared string
	Now    func() time.Time // nil means time.Now
	Random io.Reader        // nil means crypto/rand
	Log    *slog.Logger     // nil discards it; key texts are never logged
}

// Store holds all keys. Its methods are safe for concurrent use.
type Store struct {
	cfg Config
	// table is read by Find without a lock. It is replaced, never changed.
	table atomic.Pointer[table]

	mu     sync.Mutex // held during one change, including writing the file
	all    []*entry   // the store's own
	shared []*entry   // of the shared file
	text   []byte     // the content of the shared file, as last read

	sessions sessions
}

// entry is a key with its secret fields. Except for used, it is not modified.
type entry struct {
	Key
	digest   digest
	old      digest // before the last rotation
	oldUntil time.Time
	used     *counter
	requests *rate.Limiter // nil if unlimited
}

type table struct {
	byDigest map[digest]*entry
	byID     map[string]*entry
}

// Open reads the keys from the file.
func Open(c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: c}
	all, err := load(c.Path)
	if err != nil {
		return nil, fmt.Errorf("open keys: %w", err)
	}
	if err := s.readShared(); err != nil {
		return nil, fmt.Errorf("open shared keys: %w", err)
	}
	s.publish(all)
	return s, nil
}

// publish makes a list visible to Find. The caller must hold mu, except while s is being opened.
func (s *Store) publish(all []*entry) {
	t := &table{byDigest: make(map[digest]*entry, len(all)), byID: make(map[string]*entry, len(all))}
	for _, e := range slices.Concat(s.shared, all) { // a key of the store's own wins
		t.byDigest[e.digest] = e
		if !e.oldUntil.IsZero() {
			t.byDigest[e.old] = e
		}
		t.byID[e.ID] = e
		if n := e.Quotas.RequestsPerSecond; n > 0 && e.requests == nil {
			e.requests = rate.NewLimiter(rate.Limit(n), n)
		}
	}
	s.all = all
	s.table.Store(t)
	s.sessions.check(s.opens)
}

// Find returns the key with this text. It returns false for an unknown, revoked or expired key, and the caller
// does not learn which. It looks up the text's digest and also compares digests in constant time, so its duration
// reveals nothing about any text.
func (s *Store) Find(text string) (Key, bool) {
	if !Looks(text) {
		return Key{}, false
	}
	sum, now := digestOf(text), s.cfg.Now()
	e := s.table.Load().byDigest[sum]
	if e == nil {
		subtle.ConstantTimeCompare(sum[:], make([]byte, len(sum)))
		return Key{}, false
	}
	is := subtle.ConstantTimeCompare(sum[:], e.digest[:])
	was := subtle.ConstantTimeCompare(sum[:], e.old[:])
	if is == 0 && (was == 0 || !now.Before(e.oldUntil)) || e.Dead(now) != "" {
		return Key{}, false
	}
	if hour := now.Truncate(usedEvery).Unix(); e.used.Load() != hour {
		e.used.Store(hour)
	}
	return e.key(), true
}

func (e *entry) key() Key {
	k := e.Key
	k.LastUsed = timeOf(e.used.Load())
	return k
}

// Allow takes one request from the key's rate limit. If the limit is reached, it returns the time to wait.
func (s *Store) Allow(id string) (wait time.Duration, ok bool) {
	e := s.table.Load().byID[id]
	if e == nil || e.requests == nil {
		return 0, true
	}
	now := s.cfg.Now()
	if e.requests.AllowN(now, 1) {
		return 0, true
	}
	return time.Second, false
}

// Quotas returns a key's quotas. An unknown key has no quotas.
func (s *Store) Quotas(id string) Quotas {
	if e := s.table.Load().byID[id]; e != nil {
		return e.Quotas
	}
	return Quotas{}
}

// HostPorts returns the host's ports that a key grants. An unknown key grants no ports.
func (s *Store) HostPorts(id string) netpolicy.HostGrant {
	if e := s.table.Load().byID[id]; e != nil {
		return e.HostGrant()
	}
	return netpolicy.HostGrant{}
}

// Alive reports whether a key is valid.
func (s *Store) Alive(id string) bool {
	e := s.table.Load().byID[id]
	return e != nil && e.Dead(s.cfg.Now()) == ""
}

// List returns all keys, oldest first.
func (s *Store) List() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Key, 0, len(s.all)+len(s.shared))
	for _, e := range slices.Concat(s.all, s.shared) {
		out = append(out, e.key())
	}
	slices.SortStableFunc(out, func(a, b Key) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Get returns the key with this id.
func (s *Store) Get(id string) (Key, error) {
	if e := s.table.Load().byID[id]; e != nil {
		return e.key(), nil
	}
	return Key{}, fmt.Errorf("key %.64s %w", id, ErrNotFound)
}

// Create creates a key. Its text is returned only here.
func (s *Store) Create(spec Spec) (k Key, text string, err error) {
	if err := spec.validate(); err != nil {
		return Key{}, "", err
	}
	now := s.cfg.Now()
	if !spec.Expires.IsZero() && !spec.Expires.After(now) {
		return Key{}, "", fmt.Errorf("%w: it would have expired already", ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.dropDead(now)
	if len(all) >= MaxKeys {
		return Key{}, "", fmt.Errorf("%w: the limit of %d keys is reached", ErrInvalid, len(all))
	}
	for _, e := range all {
		if e.Name == spec.Name && e.Tenant == spec.Tenant && e.Dead(now) == "" {
			return Key{}, "", fmt.Errorf("key %s: %w", spec.Name, ErrTaken)
		}
	}
	id, err := s.random(6)
	if err != nil {
		return Key{}, "", err
	}
	secret, err := s.random(secretHex / 2)
	if err != nil {
		return Key{}, "", err
	}
	text = Prefix + secret
	e := &entry{Key: Key{ID: "k" + id, Name: spec.Name, Tenant: spec.Tenant, Scopes: spec.Scopes, Quotas: spec.Quotas,
		Created: now.Truncate(time.Second), Expires: spec.Expires.Truncate(time.Second),
		HostPorts: slices.Clone(spec.HostPorts)},
		digest: digestOf(text), used: new(counter)}
	if err := s.replace(append(all, e)); err != nil {
		return Key{}, "", err
	}
	return e.key(), text, nil
}

// keepDead is how long revoked and expired keys are still listed.
const keepDead = 90 * 24 * time.Hour

func (s *Store) dropDead(now time.Time) []*entry {
	return slices.DeleteFunc(slices.Clone(s.all), func(e *entry) bool {
		long := func(t time.Time) bool { return !t.IsZero() && now.Sub(t) > keepDead }
		return long(e.Revoked) || long(e.Expires)
	})
}

func (s *Store) random(n int) (string, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(s.cfg.Random, b); err != nil {
		return "", fmt.Errorf("make key: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// Revoke ends a key permanently. Once it returns, the key is not valid any more, even after a power cut. Revoking
// a key twice is no error.
func (s *Store) Revoke(id string) (Key, error) {
	return s.change(id, func(e *entry, now time.Time) error {
		if e.Revoked.IsZero() {
			e.Revoked = now.Truncate(time.Second)
		}
		return nil
	})
}

// Rotate replaces a key's text and returns the new one, only here. The old text stays valid for grace.
func (s *Store) Rotate(id string, grace time.Duration) (k Key, text string, err error) {
	k, err = s.change(id, func(e *entry, now time.Time) error {
		if why := e.Dead(now); why != "" {
			return fmt.Errorf("%w: key %s is %s", ErrInvalid, id, why)
		}
		secret, err := s.random(secretHex / 2)
		if err != nil {
			return err
		}
		e.old, e.oldUntil = digest{}, time.Time{}
		if grace > 0 {
			e.old, e.oldUntil = e.digest, now.Add(grace)
		}
		text = Prefix + secret
		e.digest = digestOf(text)
		return nil
	})
	if err != nil {
		return Key{}, "", err
	}
	return k, text, nil
}

// change replaces a key by a changed copy.
func (s *Store) change(id string, do func(*entry, time.Time) error) (Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.all, func(e *entry) bool { return e.ID == id })
	if i < 0 && slices.ContainsFunc(s.shared, func(e *entry) bool { return e.ID == id }) {
		return Key{}, fmt.Errorf("%w: key %.64s is from the shared file %s: change it there", ErrInvalid, id, s.cfg.Shared)
	}
	if i < 0 {
		return Key{}, fmt.Errorf("key %.64s %w", id, ErrNotFound)
	}
	next := *s.all[i]
	if err := do(&next, s.cfg.Now()); err != nil {
		return Key{}, err
	}
	all := slices.Clone(s.all)
	all[i] = &next
	if err := s.replace(all); err != nil {
		if !next.Revoked.IsZero() { // a revoked key must not work, at least until this daemon ends
			s.publish(all)
		}
		return Key{}, err
	}
	return next.key(), nil
}

// replace writes a list to the file and then publishes it.
func (s *Store) replace(all []*entry) error {
	if err := save(s.cfg.Path, all); err != nil {
		return fmt.Errorf("write keys: %w", err)
	}
	s.publish(all)
	return nil
}

// Run writes the times of last use to the file periodically and when ctx ends. It follows the shared file.
func (s *Store) Run(ctx context.Context) {
	var follow sync.WaitGroup
	defer follow.Wait()
	if s.cfg.Shared != "" {
		follow.Go(func() { s.follow(ctx) })
	}
	written := s.lastUses()
	for tick := time.NewTicker(usedEvery / 4); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
		}
		if now := s.lastUses(); now != written {
			s.mu.Lock()
			err := save(s.cfg.Path, s.all)
			s.mu.Unlock()
			if err != nil {
				s.cfg.Log.Warn("write when keys were last used", "err", err)
			} else {
				written = now
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// lastUses returns a sum that changes when a key is first used in an hour.
func (s *Store) lastUses() (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		sum += e.used.Load()
	}
	return sum
}

// counter is the time of a key's last use, in seconds since 1970. Copies of a key share it.
type counter struct{ atomic.Int64 }
