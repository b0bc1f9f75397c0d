package initns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// delegate makes a control group for an init below this process's own, and returns it. It returns nil if the guest has
// no control groups.
func delegate(mount string) (*os.File, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(mount, &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, nil
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find the control group: %w", err)
	}
	return makeGroup(mount, ownGroup(string(own)), os.Getpid())
}

// ownGroup reads the path of the control group from /proc/self/cgroup.
func ownGroup(text string) string {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return filepath.Clean("/" + strings.TrimSuffix(path, "\n"))
		}
	}
	return "/"
}

// makeGroup makes the group of an init below the group own. A group with controllers for its children has no process of
// its own, so its processes move to another child.
func makeGroup(mount, own string, pid int) (_ *os.File, err error) {
	dir := filepath.Join(mount, own)
	inits := filepath.Join(dir, fmt.Sprintf("init-%d", pid))
	if err := os.Mkdir(inits, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	if own != "/" {
		if err := moveAll(dir, filepath.Join(dir, "beside")); err != nil {
			return nil, err
		}
	}
	enable(mount)
	at := mount
	for part := range strings.SplitSeq(strings.Trim(own, "/"), "/") {
		at = filepath.Join(at, part)
		enable(at)
	}
	f, err := os.Open(inits)
	if err != nil {
		return nil, fmt.Errorf("open control group: %w", err)
	}
	return f, nil
}

// moveAll moves the processes of a group to another.
func moveAll(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make control group: %w", err)
	}
	b, err := os.ReadFile(filepath.Join(from, "cgroup.procs"))
	if err != nil {
		return fmt.Errorf("list the control group: %w", err)
	}
	for pid := range strings.FieldsSeq(string(b)) {
		err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(pid), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
			return fmt.Errorf("move process %.10s to a control group: %w", pid, err)
		}
	}
	return nil
}

// enable gives the children of a group its controllers. An init works without those that the kernel refuses.
func enable(dir string) {
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	for name := range strings.FieldsSeq(string(b)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0)
	}
}
