package keys

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Format is the version of the file. The package reads no other version.
const Format = 1

// Limits when decoding; see docs/inside/formats/keys.md.
const (
	MaxKeys      = 10_000
	maxFileBytes = 16 << 20
)

// file is the whole file; see docs/inside/formats/keys.md.
type file struct {
	Format int      `json:"format"`
	Keys   []record `json:"keys"`
}

// record is a stored key. Times are seconds since 1970, or 0.
type record struct {
	ID       string           `json:"id"`
	Name     string           `json:"name"`
	Tenant   string           `json:"tenant,omitempty"`
	Scopes   principal.Scopes `json:"scopes"`
	Quotas   Quotas           `json:"quotas,omitzero"`
	SHA256   string           `json:"sha256"`
	Old      string           `json:"old_sha256,omitempty"` // the text before the last rotation
	OldUntil int64            `json:"old_until,omitempty"`
	Created  int64            `json:"created"`
	Expires  int64            `json:"expires,omitempty"`
	LastUsed int64            `json:"last_used,omitempty"`
	Revoked  int64            `json:"revoked,omitempty"`
	// HostPorts are as in a Spec.
	HostPorts []string `json:"host_ports,omitempty"`
}

func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func timeOf(s int64) time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.Unix(s, 0)
}

// encode returns the content of the file.
func encode(all []*entry) ([]byte, error) {
	f := file{Format: Format, Keys: []record{}}
	for _, e := range all {
		r := record{ID: e.ID, Name: e.Name, Tenant: e.Tenant, Scopes: e.Scopes, Quotas: e.Quotas, SHA256: e.digest.String(),
			Created: seconds(e.Created), Expires: seconds(e.Expires), LastUsed: e.used.Load(), Revoked: seconds(e.Revoked),
			HostPorts: e.HostPorts}
		if !e.oldUntil.IsZero() {
			r.Old, r.OldUntil = e.old.String(), seconds(e.oldUntil)
		}
		f.Keys = append(f.Keys, r)
	}
	b, err := json.MarshalIndent(f, "", "  ")
	return append(b, '\n'), err
}

// decode reads and checks the file. It rejects the whole file if one record breaks a rule: a lost key would be a
// surprise, and a changed key a security hole.
func decode(b []byte) ([]*entry, error) {
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("decode keys: %w", hideText(err))
	}
	if f.Format != Format {
		return nil, fmt.Errorf("decode keys: format is %d, want %d", f.Format, Format)
	}
	if len(f.Keys) > MaxKeys {
		return nil, fmt.Errorf("decode keys: %d keys, want at most %d", len(f.Keys), MaxKeys)
	}
	ids, digests := map[string]bool{}, map[digest]bool{}
	out := make([]*entry, 0, len(f.Keys))
	for i, r := range f.Keys {
		e, err := r.entry()
		if err != nil {
			return nil, fmt.Errorf("decode key %d: %w", i+1, err)
		}
		if ids[e.ID] || digests[e.digest] {
			return nil, fmt.Errorf("decode key %d: it is there twice", i+1)
		}
		ids[e.ID], digests[e.digest] = true, true
		out = append(out, e)
	}
	return out, nil
}

// hideText keeps the file's content out of an error.
func hideText(err error) error {
	if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
		return fmt.Errorf("field %s is of another type", kind.Field)
	}
	if at := (*json.SyntaxError)(nil); errors.As(err, &at) {
		return fmt.Errorf("it is no JSON from byte %d on", at.Offset)
	}
	return errors.New("a field is invalid")
}

func (r record) entry() (*entry, error) {
	e := &entry{Key: Key{ID: r.ID, Name: r.Name, Tenant: r.Tenant, Scopes: r.Scopes, Quotas: r.Quotas,
		Created: timeOf(r.Created), Expires: timeOf(r.Expires), Revoked: timeOf(r.Revoked),
		HostPorts: r.HostPorts}}
	if !idPattern.MatchString(r.ID) {
		return nil, fmt.Errorf("id %.20q: want k and 12 hex digits", r.ID)
	}
	spec := Spec{Name: r.Name, Tenant: r.Tenant, Scopes: r.Scopes, Quotas: r.Quotas, HostPorts: r.HostPorts}
	if err := spec.validate(); err != nil {
		return nil, err
	}
	for _, t := range []int64{r.Created, r.Expires, r.LastUsed, r.Revoked, r.OldUntil} {
		if t < 0 || t > 1<<40 {
			return nil, errors.New("a time is out of range")
		}
	}
	var err error
	if e.digest, err = readDigest(r.SHA256); err != nil {
		return nil, err
	}
	if r.Old != "" {
		if e.old, err = readDigest(r.Old); err != nil {
			return nil, err
		}
		e.oldUntil = timeOf(r.OldUntil)
	}
	e.used = new(counter)
	e.used.Store(r.LastUsed)
	return e, nil
}

func readDigest(s string) (d digest, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(d) || s != strings.ToLower(s) {
		return d, errors.New("its digest is not 64 hex digits")
	}
	return digest(b), nil
}

// load reads the file at path. A missing file has no keys.
func load(path string) ([]*entry, error) {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: other users can read or write it (mode %04o): want 0600",
			path, st.Mode().Perm())
	}
	b, err := durable.ReadFile(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	all, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// save replaces the file atomically and durably. After a power cut, a key given to its owner still exists, and a
// revoked key does not work.
func save(path string, all []*entry) error {
	b, err := encode(slices.Clone(all))
	if err != nil {
		return err
	}
	return durable.Rewrite(path, b)
}
