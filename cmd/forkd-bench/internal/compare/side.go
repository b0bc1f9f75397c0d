package compare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// Build is one build of forkd, with its settings.
type Build struct {
	Dir   string   // directory with forkd and forkd-vmm
	Serve []string // additional flags for `forkd serve`
	Env   []string // additional environment variables for it, NAME=VALUE
	Image string   // tar of an image made by this build
	Pool  int      // shells to have ready before each lap
}

// tag is the tag of each side's snapshot.
const tag = "compare"

// Limits of a daemon's start and end.
const (
	startLimit = time.Minute
	stopLimit  = time.Minute
)

// daemon is the daemon of one side.
type daemon struct {
	Build
	dir    string // used by this daemon only
	client *client.Client
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process is reaped
}

// start runs the daemon in dir. The daemon is the only user of dir.
func start(ctx context.Context, b Build, dir string) (_ *daemon, err error) {
	d := &daemon{Build: b, dir: dir, ended: make(chan struct{})}
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(d.logFile())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	socket := "unix://" + filepath.Join(dir, "run", "forkd.sock")
	if d.client, err = client.New(client.Options{URL: socket}); err != nil {
		return nil, err
	}
	args := []string{"serve", "--listen", socket, "--data", filepath.Join(dir, "data"),
		"--run", filepath.Join(dir, "run"), "--kill-on-stop"}
	if b.knows(ctx, "--scrub-interval") { // older builds lack this flag
		args = append(args, "--scrub-interval", "0")
	}
	args = append(args, b.Serve...)
	d.cmd = exec.Command(filepath.Join(b.Dir, "forkd"), args...)
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.Env = log, log, append(os.Environ(), b.Env...)
	d.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // this program forwards Ctrl-C itself
	if err := d.cmd.Start(); err != nil {
		d.client.Close()
		return nil, fmt.Errorf("start %s: %w", d.cmd.Path, err)
	}
	go func() {
		_ = d.cmd.Wait() // the log has the reason
		close(d.ended)
	}()
	if err := d.await(ctx); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// knows reports whether the build's daemon has a flag.
func (b Build) knows(ctx context.Context, flag string) bool {
	help, err := exec.CommandContext(ctx, filepath.Join(b.Dir, "forkd"), "serve", "--help").Output()
	return err == nil && strings.Contains(string(help), flag)
}

func (d *daemon) await(ctx context.Context) error {
	for end := time.Now().Add(startLimit); d.client.Health(ctx) != nil; {
		select {
		case <-d.ended:
			return fmt.Errorf("%s serve ended: %s", d.cmd.Path, d.lastLines())
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s serve does not answer after %s: %s", d.cmd.Path, startLimit, d.lastLines())
		}
		if err := measure.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the daemon and its sandboxes.
func (d *daemon) stop() error {
	defer d.client.Close()
	_ = d.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-d.ended:
		return nil
	case <-time.After(stopLimit):
		_ = d.cmd.Process.Kill()
		<-d.ended
		return fmt.Errorf("%s serve did not stop within %s, and is killed: %s", d.cmd.Path, stopLimit, d.lastLines())
	}
}

func (d *daemon) logFile() string { return filepath.Join(d.dir, "serve.log") }

func (d *daemon) lastLines() string {
	const most = 5
	b, err := os.ReadFile(d.logFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// prepare makes the snapshot.
func (d *daemon) prepare(ctx context.Context, image string, memoryMiB int) error {
	tar, err := os.Open(d.Image)
	if err != nil {
		return err
	}
	defer tar.Close()
	if _, err := d.client.ImportImage(ctx, image, "", tar); err != nil {
		return err
	}
	_, err = d.client.CreateSnapshot(ctx, api.CreateSnapshotRequest{Tag: tag, Image: image, MemoryMiB: memoryMiB}, nil)
	return err
}
