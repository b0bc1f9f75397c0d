package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// OCI is an OCI container runtime. Each guest is a container with a Python process that evaluates
// lines. With Restore, all guests start from a checkpoint of a guest that has answered; otherwise
// each guest starts a new Python.
type OCI struct {
	Host    *Host
	Runtime string // program
	Variant string // distinguishes variants of one program; may be empty
	Restore bool
	Flags   []string // passed before the command

	program program
	dir     string
	mounted bool
}

// Name implements Peer.
func (o *OCI) Name() string {
	how := "run"
	if o.Restore {
		how = "restore"
	}
	return strings.Join(strings.Fields(o.Runtime+" "+o.Variant+" "+how), " ")
}

// Available implements Peer.
func (o *OCI) Available() (err error) {
	if o.program, err = o.Host.find(o.Runtime); err != nil {
		return err
	}
	if o.Host.Root == "" {
		return missing("no root tree with Python was named")
	}
	if o.Restore && o.Runtime == "runc" {
		if _, err := o.Host.find("criu"); err != nil {
			return missing("runc's checkpoints need criu, which is not there")
		}
	}
	if _, err := os.Stat("/dev/kvm"); o.Variant == "kvm" && err != nil {
		return missing("%v", err)
	}
	if os.Geteuid() != 0 {
		return missing("containers need root")
	}
	return nil
}

// Prepare implements Peer.
func (o *OCI) Prepare(ctx context.Context) (err error) {
	if o.program.tree {
		if err := o.Host.furnish(); err != nil {
			return err
		}
	}
	if o.dir, err = os.MkdirTemp(o.Host.Work, "forkd-peer-"); err != nil {
		return err
	}
	if err := o.mountRoot(); err != nil || !o.Restore {
		return err
	}
	g, err := o.create(ctx, "source")
	if err != nil {
		return err
	}
	defer g.Close()
	if err := g.Ask(ctx); err != nil {
		return err
	}
	return o.command(ctx, "checkpoint", "--image-path", o.program.view(o.image()), g.id)
}

func (o *OCI) image() string { return filepath.Join(o.dir, "image") }

// mountRoot makes a separate mount of the root for containers. A runtime in the tree cannot use its
// own root as a container's root.
func (o *OCI) mountRoot() error {
	root := filepath.Join(o.dir, "root")
	if err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(o.image(), 0o755)); err != nil {
		return err
	}
	if err := unix.Mount(o.Host.Root, root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the peers' root: %w", err)
	}
	o.mounted = true
	return nil
}

// command runs the runtime, with its state in the peer's directory.
func (o *OCI) command(ctx context.Context, args ...string) error {
	return o.program.run(ctx, o.args(args...)...)
}

func (o *OCI) args(args ...string) []string {
	state := o.program.view(filepath.Join(o.dir, "state"))
	return append(append([]string{"--root", state}, o.Flags...), args...)
}

// Start implements Peer.
func (o *OCI) Start(ctx context.Context, i int) (Guest, error) {
	return o.create(ctx, fmt.Sprintf("%04d", i))
}

// create makes a container, connects its standard input and output to this process, and starts it.
func (o *OCI) create(ctx context.Context, name string) (_ *container, err error) {
	c := &container{oci: o, id: filepath.Base(o.dir) + "-" + name}
	bundle := filepath.Join(o.dir, c.id)
	if err := os.Mkdir(bundle, 0o755); err != nil {
		return nil, err
	}
	if err := o.writeSpec(bundle); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.Close() // it may not exist; err has the reason
		}
	}()
	pidFile := filepath.Join(bundle, "pid")
	args := []string{"run", "--detach", "--bundle", o.program.view(bundle), "--pid-file", o.program.view(pidFile), c.id}
	if o.Restore && name != "source" {
		args = []string{"restore", "--detach", "--bundle", o.program.view(bundle), "--pid-file", o.program.view(pidFile),
			"--image-path", o.program.view(o.image()), c.id}
	}
	if err := c.make(ctx, args); err != nil {
		return nil, err
	}
	if b, err := os.ReadFile(pidFile); err == nil {
		c.pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	return c, nil
}

// writeSpec writes a container's configuration (OCI runtime specification 1.0).
func (o *OCI) writeSpec(bundle string) error {
	type object = map[string]any
	spec := object{
		"ociVersion": "1.0.2",
		"root":       object{"path": o.program.view(filepath.Join(o.dir, "root")), "readonly": true},
		"hostname":   "peer",
		"process": object{
			"user": object{"uid": 0, "gid": 0}, "cwd": "/", "terminal": false,
			"args": []string{"/usr/bin/python3", "-c", server},
			"env":  []string{"PATH=" + strings.Join(programDirs, ":"), "PYTHONDONTWRITEBYTECODE=1"},
		},
		"mounts": []object{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
		},
		"linux": object{"namespaces": []object{
			{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network"},
		}},
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bundle, "config.json"), b, 0o600)
}

// Close implements Peer.
func (o *OCI) Close() error {
	if o.dir == "" {
		return nil
	}
	if o.mounted {
		if err := unix.Unmount(filepath.Join(o.dir, "root"), unix.MNT_DETACH); err != nil {
			return fmt.Errorf("%s is left: %w", o.dir, err) // removing it would delete the contents of the peers' root
		}
		o.mounted = false
	}
	return os.RemoveAll(o.dir)
}

// container is a guest of OCI.
type container struct {
	oci *OCI
	id  string
	pid int
	in  *os.File
	out *os.File
	mu  sync.Mutex // allows one question at a time
}

// make runs the command to make the container. The container inherits its streams.
func (c *container) make(ctx context.Context, args []string) error {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirIn.Close()
	c.in = in
	out, theirOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirOut.Close()
	c.out = out
	said, err := os.CreateTemp(c.oci.dir, "said-") // a file, because the container keeps it open
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := c.oci.program.command(ctx, c.oci.args(args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, said
	if err := cmd.Run(); err != nil {
		b, _ := os.ReadFile(said.Name())
		t := tail{}
		_, _ = t.Write(b)
		return t.explain(c.oci.Runtime+" "+args[0], exitError(ctx, err))
	}
	return nil
}

func exitError(ctx context.Context, err error) error {
	var ended *exec.ExitError
	if ctx.Err() != nil && errors.As(err, &ended) {
		return context.Cause(ctx)
	}
	return err
}

// askLimit bounds how long an answer may take.
const askLimit = time.Minute

// Ask implements Guest.
func (c *container) Ask(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer context.AfterFunc(ctx, func() { _ = c.out.SetReadDeadline(time.Unix(1, 0)) })()
	if err := c.out.SetReadDeadline(time.Now().Add(askLimit)); err != nil {
		return err
	}
	if _, err := io.WriteString(c.in, question+"\n"); err != nil {
		return fmt.Errorf("ask %s: %w", c.id, err)
	}
	line, err := bufio.NewReaderSize(c.out, 64).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != answer {
		return fmt.Errorf("ask %s: answer %q: %w", c.id, line, errors.Join(err, errAnswer))
	}
	return nil
}

var errAnswer = errors.New("not what was asked for")

// Processes implements Guest.
func (c *container) Processes() []int {
	pids := mentioning(c.id)
	if c.pid > 0 {
		pids = append(pids, c.pid)
	}
	return unique(pids)
}

func unique(pids []int) (out []int) {
	seen := map[int]bool{}
	for _, p := range pids {
		if !seen[p] {
			out = append(out, p)
		}
		seen[p] = true
	}
	return out
}

// endLimit bounds the end of a guest, even if its caller's context has ended.
const endLimit = time.Minute

// Close implements Guest.
func (c *container) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	for _, f := range []*os.File{c.in, c.out} {
		if f != nil {
			f.Close()
		}
	}
	err := c.oci.command(ctx, "delete", "--force", c.id)
	for _, pid := range mentioning(c.id) { // processes of a runtime that failed or did not get this far
		_ = unix.Kill(pid, unix.SIGKILL)
		err = nil
	}
	return err
}
