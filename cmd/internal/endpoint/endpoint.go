package endpoint

import (
	"errors"
	"strings"
)

// Where says where a daemon runs.
type Where string

const (
	Named   Where = "named" // by a URL
	Host    Where = "host"
	Machine Where = "machine"
)

// Options is what a command was told about the daemon.
type Options struct {
	// URL and Token are from flags or the environment; empty if not given. A token is
	// shown to whichever daemon is found, in place of that daemon's own.
	URL, Token string
	Force      Where // Host or Machine; empty decides
	// MachineName is the machine; empty: the default one. One that is named has to be there.
	MachineName string
	// Anyway starts a daemon on this host even if its KVM is not usable.
	Anyway bool
	// Start allows starting what does not run. Without it, Resolve fails then.
	Start bool
	// Forkd is the program to start as the daemon; empty: the one beside this program.
	Forkd string
	// Progress is told of what takes a while; Notice what a person should know.
	Progress, Notice func(string)
}

// Endpoint is a daemon that answers.
type Endpoint struct {
	URL, Token string
	Where      Where
	CPUs       int // of the VMs' host; 0: not known
}

// Local reports whether the daemon runs on this host.
func (e Endpoint) Local() bool {
	return e.Where == Host || e.Where == Named && strings.HasPrefix(e.URL, "unix:")
}

// ErrNotRunning is returned if nothing may be started and nothing runs.
var ErrNotRunning = errors.New("no daemon runs")
