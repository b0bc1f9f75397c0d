// Package defaults holds what the guest's image and its latest identity say
// about everything that is started or asked for: environment, user, working
// folder, and who this clone is. It is the one mutable record that the agent's
// services share; it does nothing with it. The trap: an image's values stay
// below an identity's, so a second identity replaces the first and not the
// image.
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

// maxImageFile bounds /etc/forkd/image.json.
const maxImageFile = 1 << 20

// Path is the search path when nobody sets another.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Image is what the agent reads from the image's metadata; other keys are for
// the host.
type Image struct {
	Env     map[string]string `json:"env"`
	User    string            `json:"user"`
	Workdir string            `json:"workdir"`
}

// Clone says which clone this is. The zero value is a parent.
type Clone struct {
	SandboxID string
	Index     uint32
	Parent    string
}

// Record is the current state. It is safe for concurrent use.
type Record struct {
	mu    sync.Mutex
	image Image
	env   map[string]string // the identity's
	clone Clone
	token string
}

// New makes a record from an image's metadata.
func New(image Image) *Record { return &Record{image: image} }

// Load reads an image's metadata; a file that is not there is an empty image.
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

// User is the account that acts when a request names none: the image's, else
// the agent's own, which is root in a guest.
func (r *Record) User() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.image.User == "" {
		return strconv.Itoa(os.Getuid())
	}
	return r.image.User
}

// Workdir is the working folder when a request names none; it may be empty.
func (r *Record) Workdir() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.image.Workdir
}

// Env is the default environment, the identity's values over the image's.
func (r *Record) Env() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]string, len(r.image.Env)+len(r.env))
	maps.Copy(out, r.image.Env)
	maps.Copy(out, r.env)
	return out
}

// Token is the access token that requests must show; empty means none.
func (r *Record) Token() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.token
}

// Clone is which clone this is.
func (r *Record) Clone() Clone {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clone
}

// Become replaces the former identity. An empty token leaves requests open.
func (r *Record) Become(c Clone, env map[string]string, token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clone, r.env, r.token = c, maps.Clone(env), token
	if env["E2B_SANDBOX"] == "true" { // the host knows the id too late to send it along
		r.env["E2B_SANDBOX_ID"] = strings.ReplaceAll(c.SandboxID, "-", "")
	}
}
