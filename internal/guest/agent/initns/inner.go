package initns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/identity"
)

// inner becomes an init in new namespaces. The first argument is the name of its console. It returns only on failure.
func inner(args []string) error {
	if os.Getpid() != 1 || len(args) < 2 {
		return usageError{errors.New("this is a part of forkd-init and no command")}
	}
	// The signal at the parent's death belongs to a thread, and the program goes on as the one that executes it.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("tie the init to its command: %w", err)
	}
	for _, m := range mounts(args[0]) {
		if err := m.do(); err != nil {
			return fmt.Errorf("mount %s for the init: %w", m.target, err)
		}
	}
	program := args[1]
	err := unix.Exec(program, args[1:], os.Environ())
	return fmt.Errorf("run %s: %w", program, err)
}

type mount struct {
	source, target, fstype string
	flags                  uintptr
	optional               bool // the guest may have no such file
	replaces               bool // the kernel mounts the file system only once there
}

func (m mount) do() error {
	if m.replaces {
		if err := unix.Unmount(m.target, unix.MNT_DETACH); err != nil {
			return err
		}
	}
	err := unix.Mount(m.source, m.target, m.fstype, m.flags, "")
	if m.optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mounts returns the mounts of the new mount namespace. /run, /tmp and /dev stay the guest's. Mounts of the guest come
// here, and the init's own stay here: an init unmounts everything at its end. A read-only /sys means that devices are not the
// init's, so that no udev starts.
func mounts(console string) []mount {
	all := []mount{
		{target: "/", flags: unix.MS_REC | unix.MS_SLAVE},
		{target: "/", flags: unix.MS_REC | unix.MS_SHARED}, // for services with mounts of their own
		{source: "proc", target: "/proc", fstype: "proc", flags: plain},
		{source: identity.BootIDFile, target: identity.KernelBootID, flags: unix.MS_BIND, optional: true},
		{source: console, target: "/dev/console", flags: unix.MS_BIND, optional: true},
	}
	const sys, groups = "/sys", "/sys/fs/cgroup"
	if isMount(sys) {
		all = append(all, mount{target: sys, flags: unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | plain})
	}
	var st unix.Statfs_t
	if err := unix.Statfs(groups, &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		all = append(all, mount{source: "cgroup2", target: groups, fstype: "cgroup2", flags: plain, replaces: true})
	}
	return all
}

// isMount reports whether a file system is mounted on a directory.
func isMount(dir string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dir, 0, 0, &st)
	return err == nil && st.Attributes_mask&st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
