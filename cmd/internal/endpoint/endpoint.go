package endpoint

import (
	"errors"
	"strings"
)

// Where is the place of a daemon.
type Where string

const (
	Named   Where = "named" // by a URL
	Host    Where = "host"
	Machine Where = "machine"
)

// Options are a command's settings for finding the daemon.
type Options struct {
	// URL and Token come from flags or the environment. They are empty if not given. The token
	// replaces the found daemon's own token.
	URL, Token string
	Force      Where // Host or Machine; if empty, Find decides
	// MachineName names the machine. If empty, it is the default machine. A named machine must
	// exist.
	MachineName string
	// Anyway starts a daemon on this host even if its KVM is not usable.
	Anyway bool
	// Start allows starting a daemon. Without it, Resolve fails if no daemon runs.
	Start bool
	// Forkd is the program to start as the daemon. If empty, it is the one in this program's
	// directory.
	Forkd string
	// Progress receives messages about long operations. Notice receives messages for the user.
	Progress, Notice func(string)
}

// Endpoint is an answering daemon.
type Endpoint struct {
	// URL leads to the daemon. Token is sent to it, and may be empty.
	URL, Token string
	Where      Where // Named, Host or Machine
	CPUs       int   // of the VMs' host; 0: not known
}

// Local reports whether the daemon runs on this host.
func (e Endpoint) Local() bool {
	return e.Where == Host || e.Where == Named && strings.HasPrefix(e.URL, "unix:")
}

// ErrNotRunning is returned if no daemon runs and Start is not set.
var ErrNotRunning = errors.New("no daemon runs")
