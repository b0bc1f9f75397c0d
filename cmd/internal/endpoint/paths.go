//go:build linux

package endpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Paths are the directories of a daemon and of this user's CLI.
type Paths struct {
	Data  string // of the daemon: images and snapshots
	Run   string // of the daemon, volatile: its socket, its VMs
	Cache string // of the CLI: parts of image builds
	State string // of the CLI: its remembered state, and the log of a daemon it started
	// System is the socket of a daemon that a package installed. Root and the members of a group may
	// use it. If empty, there is none.
	System string
}

// DefaultPaths returns the paths of the file hierarchy standard for root, and XDG paths for other
// users.
func DefaultPaths() (Paths, error) {
	home, err := os.UserHomeDir()
	if err != nil && os.Geteuid() != 0 {
		return Paths{}, fmt.Errorf("find home directory: %w", err)
	}
	data := xdg("XDG_DATA_HOME", filepath.Join(home, ".local", "share"))
	p := Paths{
		Data:  data,
		Cache: filepath.Join(xdg("XDG_CACHE_HOME", filepath.Join(home, ".cache")), "images"),
		State: xdg("XDG_STATE_HOME", filepath.Join(home, ".local", "state")),
	}
	p.System = "/run/forkd/forkd.sock"
	p.Run = runDir(p.State)
	if os.Geteuid() == 0 {
		p.Data, p.Run = "/var/lib/forkd", "/run/forkd"
	}
	return p, nil
}

// runDir returns the directory of a user's sockets. It is never in the temporary directory, where
// any user could create this folder first.
func runDir(state string) string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "forkd")
	}
	// A session without the variable, such as from su(1), may still have the directory of
	// pam_systemd(8).
	dir := fmt.Sprintf("/run/user/%d", os.Geteuid())
	if st, err := os.Lstat(dir); err == nil && st.IsDir() {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Uid == uint32(os.Geteuid()) {
			return filepath.Join(dir, "forkd")
		}
	}
	return filepath.Join(state, "run")
}

// xdg returns forkd's folder in one of the XDG directories.
func xdg(variable, otherwise string) string {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "forkd")
	}
	return filepath.Join(otherwise, "forkd")
}

// Socket returns the path of the daemon's Unix socket.
func (p Paths) Socket() string { return filepath.Join(p.Run, "forkd.sock") }

// SocketURL returns the socket as a URL.
func (p Paths) SocketURL() string { return "unix://" + p.Socket() }

// ServeLog returns the path of the log of a daemon a command started.
func (p Paths) ServeLog() string { return filepath.Join(p.State, "serve.log") }

// Program finds another program of forkd. They are all in one directory.
func Program(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own program: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find %s beside %s: %w", name, filepath.Base(self), err)
	}
	return path, nil
}
