package endpoint

import (
	"fmt"
	"os"
	"path/filepath"
)

// Paths are the directories of a daemon and of this user's CLI.
type Paths struct {
	Data  string // of the daemon: images and snapshots
	Run   string // of the daemon, volatile: its socket, its VMs
	Cache string // of the CLI: parts of image builds
	State string // of the CLI: what it remembers, and the log of a daemon it started
}

// DefaultPaths follows the file hierarchy for root and XDG for others.
func DefaultPaths() (Paths, error) {
	home, err := os.UserHomeDir()
	if err != nil && os.Geteuid() != 0 {
		return Paths{}, fmt.Errorf("find home directory: %w", err)
	}
	data := xdg("XDG_DATA_HOME", filepath.Join(home, ".local", "share"))
	p := Paths{
		Data:  data,
		Run:   filepath.Join(os.TempDir(), fmt.Sprintf("forkd-%d", os.Geteuid())),
		Cache: filepath.Join(xdg("XDG_CACHE_HOME", filepath.Join(home, ".cache")), "images"),
		State: xdg("XDG_STATE_HOME", filepath.Join(home, ".local", "state")),
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		p.Run = filepath.Join(dir, "forkd")
	}
	if os.Geteuid() == 0 {
		p.Data, p.Run = "/var/lib/forkd", "/run/forkd"
	}
	return p, nil
}

// xdg is forkd's folder in one of the XDG directories.
func xdg(variable, otherwise string) string {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "forkd")
	}
	return filepath.Join(otherwise, "forkd")
}

// Socket is the daemon's Unix socket.
func (p Paths) Socket() string { return filepath.Join(p.Run, "forkd.sock") }

// SocketURL is the same as a URL.
func (p Paths) SocketURL() string { return "unix://" + p.Socket() }
