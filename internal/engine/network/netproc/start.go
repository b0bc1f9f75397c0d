package netproc

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netproxy"
	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/rundir"
)

// Names in the run directory.
const (
	dirName    = "net"
	socketName = "control.sock"
	logName    = "forkd-net.log"
	auditName  = "audit.log"
	settings   = "settings.json" // settings of the running process
	ceiling    = "ceiling.yaml"
	upstream   = "upstream-proxy"
)

// Config configures the process.
type Config struct {
	Binary  string          // the forkd-net executable
	RunDir  string          // of the daemon
	Args    []string        // its settings
	Ceiling *netpolicy.Spec // nil if there is no ceiling
	// Upstream is the URL of the proxy it dials through. It may be empty. The URL may contain a
	// password, so it is passed in files of the run directory, which only the daemon can read, and
	// never in arguments.
	Upstream string `json:",omitempty"`
	// SeedFile holds the secret from which the keys of guests' certificates derive. Start makes it if it is missing.
	// Without a name, each process has keys of its own, and programs trust only the one at their start.
	SeedFile string `json:",omitempty"`
}

// abilities is incremented when forkd-net gains a feature required by daemons, such as a limit an
// older build would silently ignore. A process started by an earlier build is then replaced. 1 adds
// the limits of trees, 2 the shares of tenants, 3 the certificates that outlive the process.
const abilities = 3

// settings returns the encoded settings that identify its process.
func (c Config) settings() ([]byte, error) {
	return json.Marshal(struct {
		Config
		Abilities int
	}{c, abilities})
}

// startTimeout bounds the time until a new process answers.
const startTimeout = 10 * time.Second

// Connect returns a function that connects to forkd-net, and starts it if it does not run.
func Connect(c Config) sandbox.NetConnect {
	return func(ctx context.Context) (sandbox.NetPort, error) {
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		dir, err := c.dir()
		if err != nil {
			return nil, err
		}
		socket := filepath.Join(dir, socketName)
		if client, err := control.Dial(ctx, socket); err == nil {
			if c.startedAlike(dir) {
				return newPort(client, socket), nil
			}
			if err := shutDown(ctx, client); err != nil {
				return nil, err
			}
		}
		return c.start(ctx, dir, socket)
	}
}

// dir makes the process's directory. Like the run directory, it belongs to the daemon's user.
func (c Config) dir() (string, error) {
	run, err := rundir.Open(c.RunDir)
	if err != nil {
		return "", err
	}
	defer run.Close()
	sub, err := run.Sub(dirName)
	if err != nil {
		return "", err
	}
	return filepath.Join(c.RunDir, dirName), sub.Close()
}

// startedAlike reports whether the running process has this daemon's settings.
func (c Config) startedAlike(dir string) bool {
	was, err := os.ReadFile(filepath.Join(dir, settings))
	now, err2 := c.settings()
	return errors.Join(err, err2) == nil && bytes.Equal(was, now)
}

// args returns the process's flags. The ceiling is passed in a file, as JSON, which is valid YAML.
// The proxy is also passed in a file, since other users can read arguments.
func (c Config) args(dir string) ([]string, error) {
	args := []string{"--control", filepath.Join(dir, socketName), "--log", filepath.Join(dir, auditName)}
	args = append(args, c.Args...)
	if c.Upstream != "" {
		path := filepath.Join(dir, upstream)
		args = append(args, "--upstream-proxy-file", path)
		if err := writePrivate(path, []byte(c.Upstream)); err != nil {
			return nil, err
		}
	}
	if c.SeedFile != "" {
		args = append(args, "--ca-seed-file", c.SeedFile)
		if err := makeSeed(c.SeedFile); err != nil {
			return nil, err
		}
	}
	if c.Ceiling == nil {
		return args, nil
	}
	b, err := json.Marshal(c.Ceiling)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, ceiling)
	return append(args, "--ceiling", path), os.WriteFile(path, b, 0o600)
}

// makeSeed makes the file with the seed of certificates, unless it exists.
func makeSeed(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	seed := make([]byte, netproxy.SeedBytes)
	_, _ = rand.Read(seed) // never fails
	if err := durable.Rewrite(path, seed); err != nil {
		return fmt.Errorf("make the seed of the network's certificates: %w", err)
	}
	return nil
}

// shutDown ends a process with other settings. VMs get new wires.
func shutDown(ctx context.Context, client *control.Client) error {
	defer client.Close()
	if err := client.Shutdown(ctx); err != nil && !errors.Is(err, control.ErrClosed) {
		return fmt.Errorf("end the forkd-net with other settings: %w", err)
	}
	select {
	case <-client.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the forkd-net with other settings: %w", context.Cause(ctx))
	}
}

// start starts the process, and waits until it answers.
func (c Config) start(ctx context.Context, dir, socket string) (sandbox.NetPort, error) {
	_ = os.Remove(socket) // of an earlier process
	args, err := c.args(dir)
	if err != nil {
		return nil, err
	}
	// Keep the previous log for a while: the process may have ended with an error.
	path := filepath.Join(dir, logName)
	_ = os.Rename(path, path+".1")
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(c.Binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // keeps signals to the daemon's process group from it
	if err := cmd.Start(); err != nil {
		log.Close()
		return nil, fmt.Errorf("start forkd-net: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		defer log.Close()
		err := cmd.Wait()
		if err != nil {
			fmt.Fprintln(log, "forkd-net has ended:", err)
		}
		ended <- err
	}()
	client, err := await(ctx, socket, ended)
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("start forkd-net: %w%s", err, lastWords(path))
	}
	if err := c.noteSettings(dir); err != nil {
		client.Close()
		return nil, err
	}
	return newPort(client, socket), nil
}

func (c Config) noteSettings(dir string) error {
	b, err := c.settings()
	if err != nil {
		return err
	}
	return writePrivate(filepath.Join(dir, settings), b)
}

// writePrivate writes a file that only the daemon's user can read, also if the file existed before.
func writePrivate(path string, b []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// await dials until the process answers, or has ended.
func await(ctx context.Context, socket string, ended <-chan error) (*control.Client, error) {
	for {
		client, err := control.Dial(ctx, socket)
		if err == nil {
			return client, nil
		}
		select {
		case end := <-ended:
			return nil, fmt.Errorf("it has ended: %w", errors.Join(end, err))
		case <-ctx.Done():
			return nil, err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// maxWords is the number of bytes of the log quoted in an error.
const maxWords = 400

func lastWords(log string) string {
	b, _ := os.ReadFile(log)
	if len(b) == 0 {
		return ""
	}
	return fmt.Sprintf("; it said: %q", b[max(0, len(b)-maxWords):])
}
