// Package defaults holds the defaults of the guest's image and of its latest identity: environment,
// user, working directory and the identity of this clone. All services of the agent share this one
// mutable record. The package only stores it. Values of an identity override the image's values
// without changing them, so a second identity replaces the first but not the image.
package defaults

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
)

// maxImageFile limits the size of /etc/forkd/image.json.
const maxImageFile = 1 << 20

// Path is the default search path.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Image is the agent's part of the image's metadata. Other keys are for the host.
type Image struct {
	Env     map[string]string `json:"env"`     // default variables; those of an identity win
	User    string            `json:"user"`    // account for requests without one; if empty, the agent's own
	Workdir string            `json:"workdir"` // directory for requests without one; may be empty
	// DiskDirs are directories that lie directly on the writable disk's file system.
	DiskDirs []string `json:"disk_dirs"`
	// Limits are limits of programs.
	Limits Limits `json:"limits"`
}

// Limits are limits of programs. 0 is the default.
type Limits struct {
	OpenFiles        uint64 `json:"open_files"`        // soft, of a process
	InotifyWatches   uint64 `json:"inotify_watches"`   // of a user
	InotifyInstances uint64 `json:"inotify_instances"` // of a user
}

// Clone identifies this clone. The zero value is a parent.
type Clone struct {
	SandboxID string // the clone's own id
	Index     uint32 // number of the clone among its siblings
	Parent    string // tag of the snapshot it was forked from
}

// Record holds the current defaults. It is safe for concurrent use.
type Record struct {
	mu    sync.Mutex
	image Image
	env   map[string]string // from the identity
	clone Clone
	token string
}

// New returns a record with an image's metadata.
func New(image Image) *Record { return &Record{image: image} }

// Load reads an image's metadata. A missing file is an empty image.
func Load(path string) (Image, error) {
	st, err := os.Stat(path)
	if os.IsNotExist(err) {
		return Image{}, nil
	}
	if err != nil {
		return Image{}, fmt.Errorf("read image metadata: %w", err)
	}
	if st.Size() > maxImageFile {
		return Image{}, fmt.Errorf("read image metadata: %s is %d bytes, more than %d", path, st.Size(), maxImageFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return Image{}, fmt.Errorf("read image metadata: %w", err)
	}
	var im Image
	if err := json.Unmarshal(b, &im); err != nil {
		return Image{}, fmt.Errorf("parse image metadata: %w", err)
	}
	return im, nil
}

// User returns the account for requests without one: the image's user, otherwise the agent's own,
// which is root in a guest.
func (r *Record) User() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.image.User == "" {
		return strconv.Itoa(os.Getuid())
	}
	return r.image.User
}

// Workdir returns the working directory for requests without one. It may be empty.
func (r *Record) Workdir() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.image.Workdir
}

// Env returns the default environment. The identity's values override the image's.
func (r *Record) Env() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]string, len(r.image.Env)+len(r.env))
	maps.Copy(out, r.image.Env)
	maps.Copy(out, r.env)
	return out
}

// Token returns the required access token of requests. If empty, requests need no token.
func (r *Record) Token() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.token
}

// Clone returns the identity of this clone.
func (r *Record) Clone() Clone {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clone
}

// Saved is the identity in a record, for a later program of this agent.
type Saved struct {
	Env   map[string]string `json:"env"`   // variables from the identity
	Clone Clone             `json:"clone"` // who this guest is
	Token string            `json:"token"` // required of requests; may be empty
}

// Save returns the identity.
func (r *Record) Save() Saved {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Saved{maps.Clone(r.env), r.clone, r.token}
}

// Restore sets the identity of Save.
func (r *Record) Restore(s Saved) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.env, r.clone, r.token = s.Env, s.Clone, s.Token
}

// Become replaces the former identity. With an empty token, requests need no token.
func (r *Record) Become(c Clone, env map[string]string, token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clone, r.env, r.token = c, maps.Clone(env), token
	if env["E2B_SANDBOX"] == "true" { // the host learns the id too late to send it
		r.env["E2B_SANDBOX_ID"] = strings.ReplaceAll(c.SandboxID, "-", "")
	}
}
