package appliance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/filelock"
)

// DefaultName is the machine used by commands without a machine's name.
const DefaultName = "default"

// ErrNotRunning is returned by operations that need a running machine.
var ErrNotRunning = errors.New("machine is not running")

// Names of the files in a machine's directory. It is QEMU's working directory, and QEMU is given only file names.
// So no path can be too long for a socket, or contain a character at which QEMU's option parser splits.
const (
	stateFile   = "state.json"
	tokenFile   = "token"
	lockFile    = "lock"
	pidFile     = "qemu.pid"
	diskFile    = "data.img"
	initrdFile  = "initrd"
	kernelFile  = "kernel"
	consoleFile = "console.log"
	qemuLogFile = "qemu.log"
	qmpSocket   = "qmp.sock"
	ctlSocket   = "control.sock"
)

// Appliance is a named appliance on this host, running or not.
type Appliance struct {
	Name string
	Dir  string
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// Open returns the machine with this name. It creates no files.
func Open(name string) (*Appliance, error) {
	if name == "" {
		name = DefaultName
	}
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("machine name %q: want 1 to 32 lower-case letters, digits or dashes", name)
	}
	root, err := dataRoot()
	if err != nil {
		return nil, err
	}
	return &Appliance{Name: name, Dir: filepath.Join(root, "machine", name)}, nil
}

// Running returns the names of this user's running machines.
func Running() (names []string) {
	root, err := dataRoot()
	if err != nil {
		return nil
	}
	entries, _ := os.ReadDir(filepath.Join(root, "machine"))
	for _, e := range entries {
		m, err := Open(e.Name())
		if err != nil {
			continue
		}
		if _, err := m.running(); err == nil {
			names = append(names, m.Name)
		}
	}
	return names
}

// dataRoot returns forkd's data directory of this user.
func dataRoot() (string, error) {
	if d := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "forkd"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find data directory: %w", err)
	}
	return filepath.Join(home, ".local", "share", "forkd"), nil
}

// cacheRoot returns the directory for recreatable files.
func cacheRoot() (string, error) {
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w", err)
	}
	return filepath.Join(d, "forkd"), nil
}

func (a *Appliance) path(name string) string { return filepath.Join(a.Dir, name) }

// Exists reports whether the machine was started before and not removed since.
func (a *Appliance) Exists() bool {
	_, err := os.Stat(a.path(tokenFile))
	return err == nil
}

// Token returns the bearer token of the machine's agent and daemon.
func (a *Appliance) Token() (string, error) {
	b, err := os.ReadFile(a.path(tokenFile))
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return string(b), nil
}

// prepare creates the directory and the token, once.
func (a *Appliance) prepare() error {
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return err
	}
	if a.Exists() {
		return nil
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("make token: %w", err)
	}
	return durable.Replace(a.path(tokenFile), []byte(hex.EncodeToString(secret)))
}

// isAt reports whether the path still refers to the file.
func isAt(f *os.File, path string) bool {
	own, err1 := f.Stat()
	there, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(own, there)
}

// lock serializes changes to a machine across processes. The returned function releases the lock, and so does the
// kernel if the process dies.
func (a *Appliance) lock(ctx context.Context) (func(), error) {
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(a.path(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Wait(ctx, f, nil); err != nil {
		f.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("machine %s is being changed by another command: %w", a.Name, ctx.Err())
		}
		return nil, fmt.Errorf("lock machine %s: %w", a.Name, err)
	}
	if !isAt(f, a.path(lockFile)) { // removed with its machine while waiting
		f.Close()
		return a.lock(ctx)
	}
	return func() { f.Close() }, nil
}
