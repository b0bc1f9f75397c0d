// Package records stores the facts of E2B's API about a sandbox the engine does not store: its
// template's name, metadata, environment and tokens. Each record is a file in one folder, so that
// it survives the daemon. It is written before any client learns of its sandbox, and removed with
// the sandbox. The trap: records hold secrets. Only the daemon's user may read their files.
package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/sys/durable"
)

// maxBytes limits a record, because its metadata and environment come from a request of limited
// size.
const maxBytes = 4 << 20

// version is the format Store writes. Version 0 had neither version nor open_agent.
const version = 1

// Record describes one sandbox. It is a copy: changes have no effect on the store.
type Record struct {
	ID string `json:"id"` // the engine's
	// Template is the ID of a built template. Otherwise it is the name that the client gave.
	Template string `json:"template"`
	Alias    string `json:"alias,omitempty"` // name of a built template; otherwise empty
	// Version is the record's format. Store sets it.
	Version int `json:"version"`
	// OpenAgent admits requests to the agent without a token. Its zero value is closed. A record of
	// version 0 is never open, because its format had no such field.
	OpenAgent bool `json:"open_agent,omitempty"`
	// EnvdToken admits a request to the agent that shows it. An empty token admits no request.
	EnvdToken string            `json:"envd_token,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"` // the client's, for answers and filters
	Envs      map[string]string `json:"envs,omitempty"`     // variables that the client set for programs
	Started   time.Time         `json:"started"`            // time of the create
	// End is the time at which the sandbox is killed, or paused with Pause. Zero means no end.
	End        time.Time `json:"end,omitzero"`
	Pause      bool      `json:"pause,omitempty"`       // pause at End instead of kill
	PauseDisk  bool      `json:"pause_disk,omitempty"`  // Pause keeps its disk and not its memory
	AutoResume bool      `json:"auto_resume,omitempty"` // traffic resumes it when paused
	// FilesystemOnly means that its last pause kept its disk and not its memory.
	FilesystemOnly bool `json:"filesystem_only,omitempty"`
	DiskMB         int  `json:"disk_mb,omitempty"` // logical size of its snapshot's disks, in MiB
	// Internet is allow_internet_access. If nil, the client did not set it.
	Internet *bool `json:"internet,omitempty"`
	// Network is the client's configuration without secrets, for later answers.
	Network json.RawMessage `json:"network,omitempty"`
	// MaskHost is the Host that servers in the sandbox see. If empty, they see the client's.
	MaskHost string `json:"mask_host,omitempty"`
	// HTTPSPorts are at most MaxHTTPSPorts ports of the sandbox whose servers speak TLS.
	HTTPSPorts []uint16 `json:"https_ports,omitempty"`
}

func (r Record) clone() Record {
	r.Metadata, r.Envs = maps.Clone(r.Metadata), maps.Clone(r.Envs)
	return r
}

// MaxHTTPSPorts limits the ports with TLS of a sandbox.
const MaxHTTPSPorts = 64

// Store holds the records of all sandboxes.
type Store struct {
	dir string

	mu  sync.Mutex // guards all, and orders writes
	all map[string]Record
	// tokens is the index of Find. If nil, it must be built.
	tokens []idToken
}

// Open reads the records below dir, and creates dir if it is missing. Unknown or damaged files stay
// and are returned in skipped.
func Open(dir string) (_ *Store, skipped []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make directory of records: %w", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read records: %w", err)
	}
	s := &Store{dir: dir, all: map[string]Record{}}
	for _, n := range names {
		r, err := read(filepath.Join(dir, n.Name()))
		if err != nil {
			skipped = append(skipped, fmt.Sprintf("%s: %v", n.Name(), err))
			continue
		}
		s.all[r.ID] = r
	}
	return s, skipped, nil
}

func read(path string) (Record, error) {
	id, ok := strings.CutSuffix(filepath.Base(path), suffix)
	if !ok || !anID.MatchString(id) {
		return Record{}, errors.New("it is no record")
	}
	b, err := durable.ReadFile(path, maxBytes)
	if err != nil {
		return Record{}, err
	}
	r, err := Decode(b)
	if err == nil && r.ID != id {
		err = fmt.Errorf("it is about %q", r.ID)
	}
	return r, err
}

// Decode reads a record.
func Decode(b []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, fmt.Errorf("decode record: %w", err)
	}
	if !anID.MatchString(r.ID) || r.Template == "" {
		return Record{}, errors.New("decode record: its id or its template is missing")
	}
	if r.Version < 0 || r.Version > version {
		return Record{}, fmt.Errorf("decode record: its version is %d, want at most %d", r.Version, version)
	}
	if r.Version == 0 {
		r.OpenAgent = false
	}
	return r, nil
}

const suffix = ".json"

// anID ensures that a record's file stays in the folder.
var anID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

func (s *Store) path(id string) string { return filepath.Join(s.dir, id+suffix) }

// Put writes a record and replaces an earlier one of the same sandbox.
func (s *Store) Put(r Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putLocked(r)
}

func (s *Store) putLocked(r Record) error {
	if !anID.MatchString(r.ID) {
		return fmt.Errorf("record of sandbox %q: that is no id", r.ID)
	}
	r.Version = version
	b, err := json.Marshal(r)
	if err == nil && len(b) > maxBytes {
		err = fmt.Errorf("it has %d bytes, more than %d", len(b), maxBytes)
	}
	if err == nil {
		err = durable.Replace(s.path(r.ID), b)
	}
	if err != nil {
		return fmt.Errorf("write record of %s: %w", r.ID, err)
	}
	if s.all[r.ID].EnvdToken != r.EnvdToken {
		s.tokens = nil
	}
	s.all[r.ID] = r.clone()
	return nil
}

// Settle writes a record and returns it as written. A closed record keeps the sandbox's existing
// token, and otherwise gets one. If there are several writers, the first one's token stays. With
// create, Settle creates a missing record. Without it, a sandbox without a record has ended, and
// its record stays removed.
func (s *Store) Settle(r Record, create bool, newToken func() string) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ok := s.all[r.ID]
	if !ok && !create {
		return r, nil
	}
	return s.settleLocked(now, r, newToken)
}

// Update is Settle without create. It calls change with the previous record and the record to
// write. ok is false if there was no record, because the sandbox has ended.
func (s *Store) Update(r Record, newToken func() string,
	change func(before Record, r *Record)) (_ Record, ok bool, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ok := s.all[r.ID]
	if !ok {
		return r, false, nil
	}
	change(now, &r)
	r, err := s.settleLocked(now, r, newToken)
	return r, true, err
}

func (s *Store) settleLocked(now, r Record, newToken func() string) (Record, error) {
	switch {
	case r.OpenAgent:
	case now.EnvdToken != "":
		r.EnvdToken = now.EnvdToken
	case r.EnvdToken == "":
		r.EnvdToken = newToken()
	}
	return r.clone(), s.putLocked(r)
}

// Get returns a record.
func (s *Store) Get(id string) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.all[id]
	return r.clone(), ok
}

// All returns all records, in no order.
func (s *Store) All() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Record, 0, len(s.all))
	for _, r := range s.all {
		out = append(out, r.clone())
	}
	return out
}

// Find returns the ID of the first record with a matching token. It copies no record. match runs
// without the Store's lock. Records without a token never match.
func (s *Store) Find(match func(token string) bool) (id string, ok bool) {
	for _, t := range s.tokensNow() {
		if match(t.token) {
			return t.id, true
		}
	}
	return "", false
}

// idToken is a record in the index of tokens.
type idToken struct{ id, token string }

// tokensNow returns the index. It builds a new index only after a change of a token, and never
// changes an index.
func (s *Store) tokensNow() []idToken {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens == nil {
		s.tokens = make([]idToken, 0, len(s.all))
		for id, r := range s.all {
			if r.EnvdToken != "" {
				s.tokens = append(s.tokens, idToken{id, r.EnvdToken})
			}
		}
	}
	return s.tokens
}

// Secrets returns the tokens of all sandboxes. The agents of the sandboxes hold them in memory.
func (s *Store) Secrets() []string {
	now := s.tokensNow()
	out := make([]string, len(now))
	for i, t := range now {
		out[i] = t.token
	}
	return out
}

// Remove removes the record of a sandbox. A missing record is no error.
func (s *Store) Remove(id string) error {
	if !anID.MatchString(id) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
	s.tokens = nil
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record of %s: %w", id, err)
	}
	return nil
}

// maxCarried limits a record for another daemon, in bytes.
const maxCarried = 1 << 20

// Carried returns the record of a sandbox for another daemon, and its token. Both are empty without a record.
func (s *Store) Carried(id string) (record []byte, token string, err error) {
	r, ok := s.Get(id)
	if !ok {
		return nil, "", nil
	}
	if record, err = json.Marshal(r); err == nil && len(record) > maxCarried {
		err = fmt.Errorf("its metadata and environment have %d bytes, more than %d", len(record), maxCarried)
	}
	return record, r.EnvdToken, err
}

// Receive writes the record of a sandbox that comes from another daemon.
func (s *Store) Receive(id string, record []byte) error {
	r, err := decodeCarried(id, record)
	if err != nil {
		return err
	}
	return s.Put(r)
}

// decodeCarried decodes a record of another daemon, and checks what this one would have checked in a request.
func decodeCarried(id string, record []byte) (Record, error) {
	if len(record) > maxCarried {
		return Record{}, fmt.Errorf("it has more than %d bytes", maxCarried)
	}
	r, err := Decode(record)
	switch {
	case err != nil:
		return Record{}, err
	case r.ID != id:
		return Record{}, errors.New("it is about another sandbox")
	case r.Version != version:
		return Record{}, fmt.Errorf("its version is %d, want %d", r.Version, version)
	case r.OpenAgent == (r.EnvdToken != ""):
		return Record{}, errors.New("its agent has to be open, or to have a token")
	}
	for _, text := range []string{r.Template, r.Alias, r.EnvdToken, r.MaskHost} {
		if len(text) > 512 || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return Record{}, errors.New("it has a text that is no name")
		}
	}
	if len(r.HTTPSPorts) > MaxHTTPSPorts {
		return Record{}, fmt.Errorf("it has %d ports with TLS, want at most %d", len(r.HTTPSPorts), MaxHTTPSPorts)
	}
	return r, nil
}
