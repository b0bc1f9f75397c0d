package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/undo"
)

// Host is the place where peers run: this host, with a root tree. The tree has Python, and the
// peers' programs missing on the host.
type Host struct {
	Root string // the tree, which is the guests' read-only root
	Work string // directory for temporary files; below Root if programs run in the tree
	Env  []string

	mounts undo.Stack // mounts in the tree
	inTree bool       // the mounts exist
}

// Close removes the mounts.
func (h *Host) Close() { h.mounts.Run() }

// programDirs are the directories of programs in a root tree.
var programDirs = []string{"/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin"}

// program is a peer's program, and how to run it.
type program struct {
	host *Host
	path string
	tree bool // run it with the tree as its root
}

// find searches for a program on the host, then in its root tree.
func (h *Host) find(name string) (program, error) {
	if path, err := exec.LookPath(name); err == nil {
		return program{host: h, path: path}, nil
	}
	for _, dir := range programDirs {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(filepath.Join(h.Root, path)); h.Root != "" && err == nil && st.Mode().IsRegular() {
			return program{host: h, path: path, tree: true}, nil
		}
	}
	return program{}, missing("there is no program %s on the host or in the peers' root", name)
}

// command returns a command for the program. The caller must convert paths among the arguments with
// p.view.
func (p program) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // this program forwards Ctrl-C itself
	cmd.WaitDelay = 5 * time.Second                    // child processes may keep its output open
	cmd.Env = append(os.Environ(), "PATH="+strings.Join(programDirs, ":"))
	if p.tree {
		cmd.SysProcAttr.Chroot, cmd.Dir = p.host.Root, "/"
	}
	return cmd
}

// run runs the program to its end. An error includes the end of its output.
func (p program) run(ctx context.Context, args ...string) error {
	var said tail
	cmd := p.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return said.explain(filepath.Base(p.path)+" "+args[0], err)
	}
	return nil
}

// view converts a path of this host to a path as seen by the program.
func (p program) view(path string) string {
	if !p.tree {
		return path
	}
	rel, err := filepath.Rel(p.host.Root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return path // the program reports the error itself
	}
	return "/" + rel
}

// furnish makes the mounts in the tree for its programs. A runtime running in the tree needs the
// tree to be a mount, with /proc, /sys, /dev and control groups.
func (h *Host) furnish() (err error) {
	if h.inTree {
		return nil
	}
	defer func() {
		if err != nil {
			h.mounts.Run()
		}
	}()
	bind := func(from, to string, flags uintptr) error {
		if err := unix.Mount(from, to, "", unix.MS_BIND|flags, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", from, to, err)
		}
		h.mounts.Push(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
		return nil
	}
	if err := bind(h.Root, h.Root, 0); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := os.MkdirAll(h.Root+dir, 0o755); err != nil {
			return err
		}
		if err := bind(dir, h.Root+dir, unix.MS_REC); err != nil {
			return err
		}
	}
	if empty(h.Root + "/sys/fs/cgroup") {
		to := h.Root + "/sys/fs/cgroup"
		if err := unix.Mount("cgroup2", to, "cgroup2", 0, ""); err != nil {
			return fmt.Errorf("mount cgroup2: %w", err)
		}
		h.mounts.Push(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
	}
	h.inTree = true
	return nil
}

func empty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}

// tail keeps the end of a program's output.
type tail struct{ b []byte }

const maxTail = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-maxTail):]
	return len(p), nil
}

func (t *tail) explain(what string, err error) error {
	if said := strings.TrimSpace(string(t.b)); said != "" {
		return fmt.Errorf("%s: %w: %s", what, err, said)
	}
	return errors.New(what + ": " + err.Error())
}
