package idtoken

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/filelock"
)

const (
	algorithm = jose.RS256
	keyBits   = 2048
	// format is the version of the file. The package reads no other version.
	format = 1
	// keyFile is the name of the file in the directory, and lockFile that of the lock of its writers.
	keyFile  = "keys.json"
	lockFile = "lock"
	// maxKeyFile bounds the file. A daemon has one private key and a few public ones.
	maxKeyFile = 256 << 10
	maxKeys    = 64
)

// retiredFor is the time that a public key stays in the key set after a rotation: until the last token signed with
// it has expired at every relying party.
const retiredFor = MaxLifetime + 10*time.Minute

// file is the content of keys.json. The current key is last.
type file struct {
	Format int   `json:"format"`
	Keys   []key `json:"keys"`
}

// key is a signing key, or the public half of an earlier one.
type key struct {
	ID      string         `json:"id"`                // SHA-256 of the public key, shortened
	Created time.Time      `json:"created"`           // time of the rotation that made it
	Retired time.Time      `json:"retired,omitzero"`  // time of the rotation; zero for the current key
	Private []byte         `json:"private,omitempty"` // PKCS #8; only the current key has it
	Public  []byte         `json:"public"`            // PKIX
	parsed  *rsa.PublicKey // Public, decoded
}

func newKey(now time.Time) (key, error) {
	made, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return key{}, err
	}
	k := key{Created: now.UTC().Truncate(time.Second), parsed: &made.PublicKey}
	if k.Private, err = x509.MarshalPKCS8PrivateKey(made); err != nil {
		return key{}, err
	}
	if k.Public, err = x509.MarshalPKIXPublicKey(&made.PublicKey); err != nil {
		return key{}, err
	}
	k.ID = idOf(k.Public)
	return k, nil
}

func idOf(public []byte) string {
	sum := sha256.Sum256(public)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// expired reports whether no valid token can have been signed with a key.
func (k key) expired(now time.Time) bool {
	return !k.Retired.IsZero() && now.After(k.Retired.Add(retiredFor))
}

// keyRing is the keys in a directory. Other processes may rotate them.
type keyRing struct {
	dir string
	now func() time.Time
	log *slog.Logger

	// mu guards the fields below.
	mu    sync.Mutex
	keys  []key
	sign  jose.Signer
	state fileState // of the file that the keys are from
}

// fileState changes when the file is replaced.
type fileState struct {
	inode uint64
	mtime unix.Timespec
	size  int64
}

func openKeys(dir string, now func() time.Time, log *slog.Logger) (*keyRing, error) {
	if _, err := os.Lstat(filepath.Join(dir, keyFile)); errors.Is(err, fs.ErrNotExist) {
		if _, err := change(dir, func(all []key) ([]key, error) {
			if len(all) > 0 {
				return all, nil // made by another process meanwhile
			}
			first, err := newKey(now())
			return []key{first}, err
		}); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &keyRing{dir: dir, now: now, log: log}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r, r.loadLocked()
}

// loadLocked reads the file if it has changed.
func (r *keyRing) loadLocked() error {
	path := filepath.Join(r.dir, keyFile)
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	state := fileState{st.Ino, st.Mtim, st.Size}
	if r.sign != nil && state == r.state {
		return nil
	}
	all, err := read(path)
	if err != nil {
		return err
	}
	sign, err := signerOf(all[len(all)-1])
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	r.keys, r.sign, r.state = all, sign, state
	return nil
}

// refreshLocked reads the file again. Without a readable file the keys in memory stay in use.
func (r *keyRing) refreshLocked() {
	if err := r.loadLocked(); err != nil {
		r.log.Warn("the keys of identity tokens cannot be read again: those in memory stay in use", "err", err)
	}
}

func signerOf(k key) (jose.Signer, error) {
	parsed, err := x509.ParsePKCS8PrivateKey(k.Private)
	private, is := parsed.(*rsa.PrivateKey)
	if err != nil || !is || !private.PublicKey.Equal(k.parsed) { // without the error, which may hold parts of the key
		return nil, fmt.Errorf("key %s is damaged", k.ID)
	}
	return jose.NewSigner(
		jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: private, KeyID: k.ID}},
		(&jose.SignerOptions{}).WithType("JWT"))
}

// signer returns the signer with the current key.
func (r *keyRing) signer() jose.Signer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refreshLocked()
	return r.sign
}

func (r *keyRing) public() (set jose.JSONWebKeySet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refreshLocked()
	set.Keys = []jose.JSONWebKey{}
	now := r.now()
	for _, k := range r.keys {
		if !k.expired(now) {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.parsed, KeyID: k.ID, Algorithm: string(algorithm), Use: "sig"})
		}
	}
	return set
}

// Rotate makes a new key in an issuer's directory. The old public key stays in the key set while tokens signed with
// it may be valid. With revoke it leaves the set now, and its tokens become invalid. A running daemon uses the new key
// from its next token. Rotate returns the new key's ID.
func Rotate(dir string, now time.Time, revoke bool) (id string, err error) {
	if _, err := os.Lstat(filepath.Join(dir, keyFile)); err != nil {
		return "", err
	}
	all, err := change(dir, func(all []key) ([]key, error) {
		next, err := newKey(now)
		if err != nil {
			return nil, err
		}
		var kept []key
		for _, k := range all {
			k.Private = nil
			if k.Retired.IsZero() {
				k.Retired = now.UTC().Truncate(time.Second)
			}
			if !revoke && !k.expired(now) {
				kept = append(kept, k)
			}
		}
		if len(kept) >= maxKeys {
			return nil, fmt.Errorf("%d earlier keys are still in use: wait until the first has expired, or revoke them",
				len(kept))
		}
		return append(kept, next), nil
	})
	if err != nil {
		return "", err
	}
	return all[len(all)-1].ID, nil
}

// change rewrites the file under a lock. The content is durable when it returns.
func change(dir string, do func([]key) ([]key, error)) ([]key, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := filelock.Lock(lock); err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	path := filepath.Join(dir, keyFile)
	all, err := read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if all, err = do(all); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(file{format, all}, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := durable.Rewrite(path, append(b, '\n')); err != nil {
		return nil, err
	}
	return all, giveToOwner(path, dir)
}

// giveToOwner gives a file to the owner of its directory. Root may rotate the keys of another user's daemon.
func giveToOwner(path, dir string) error {
	var of, now unix.Stat_t
	if err := errors.Join(unix.Lstat(dir, &of), unix.Lstat(path, &now)); err != nil {
		return err
	}
	if of.Uid == now.Uid && of.Gid == now.Gid || os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(path, int(of.Uid), int(of.Gid))
}

// KeyInfo describes a key for people.
type KeyInfo struct {
	ID      string    `json:"id"`               // kid of its tokens
	Created time.Time `json:"created"`          // time of the rotation that made it
	Retired time.Time `json:"retired,omitzero"` // time of the next rotation; zero for the current key
	Until   time.Time `json:"until,omitzero"`   // when it leaves the key set; zero for the current key
}

// Keys returns the keys in an issuer's directory that are in the key set. The current key is last.
func Keys(dir string, now time.Time) (out []KeyInfo, err error) {
	all, err := read(filepath.Join(dir, keyFile))
	for _, k := range all {
		if k.expired(now) {
			continue
		}
		i := KeyInfo{ID: k.ID, Created: k.Created, Retired: k.Retired}
		if !k.Retired.IsZero() {
			i.Until = k.Retired.Add(retiredFor)
		}
		out = append(out, i)
	}
	return out, err
}

// read reads the file. It refuses a file that other users can read.
func read(path string) ([]key, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if perm := st.Mode().Perm(); perm&0o077 != 0 {
		return nil, fmt.Errorf("%s: other users can read or write it (mode %04o): run chmod 600 %s", path, perm, path)
	}
	b, err := durable.ReadFile(path, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	all, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// decode parses the file. Its errors contain no part of a key.
func decode(b []byte) ([]key, error) {
	var f file
	if json.Unmarshal(b, &f) != nil {
		return nil, errors.New("is damaged: restore it from a copy, or remove it for a new key")
	}
	if f.Format != format {
		return nil, fmt.Errorf("has format %d, want %d", f.Format, format)
	}
	if len(f.Keys) == 0 || len(f.Keys) > maxKeys {
		return nil, fmt.Errorf("has %d keys, want 1 to %d", len(f.Keys), maxKeys)
	}
	for i := range f.Keys {
		k, last := &f.Keys[i], i == len(f.Keys)-1
		parsed, err := x509.ParsePKIXPublicKey(k.Public)
		public, is := parsed.(*rsa.PublicKey)
		if err != nil || !is || public.Size()*8 < keyBits || k.ID != idOf(k.Public) {
			return nil, fmt.Errorf("key %d is damaged: restore the file from a copy, or remove it for a new key", i+1)
		}
		if last != (len(k.Private) > 0) || last != k.Retired.IsZero() {
			return nil, fmt.Errorf("key %d: want a private key in the last key only", i+1)
		}
		k.parsed = public
	}
	return f.Keys, nil
}
