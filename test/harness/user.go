package harness

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// UserVariable has all daemons run as the ordinary user of that number, for a test that is root. What
// they need is given to that user: the devices of VMs, for as long as the host runs, and their own
// directories. It has no cgroups, and no user namespaces of its own range.
const UserVariable = "FORKD_TEST_USER"

// Ordinary is that user; nil: daemons run as the test.
func Ordinary() *syscall.Credential {
	id, err := strconv.ParseUint(os.Getenv(UserVariable), 10, 32)
	if err != nil || id == 0 || os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}
}

// devices are what VMs need that distributions' rules give to a group.
var devices = []string{"/dev/kvm", "/dev/userfaultfd"}

// become has the daemon run as the ordinary user, if there is to be one.
func (d *Daemon) become() error {
	if d.User != nil {
		return nil
	}
	if d.User = Ordinary(); d.User == nil {
		return nil
	}
	for _, device := range devices {
		if err := os.Chown(device, -1, int(d.User.Gid)); err != nil {
			return fmt.Errorf("give a device to user %d: %w", d.User.Uid, err)
		}
		if err := os.Chmod(device, 0o660); err != nil {
			return fmt.Errorf("give a device to user %d: %w", d.User.Uid, err)
		}
	}
	return nil
}

// give has the user own what is in the daemon's directories: each time, as tests put there what they made
// as root. Programs and images' files may be links to everybody's, and are readable by all.
func (d *Daemon) give() error {
	if d.User == nil || Ordinary() == nil {
		return nil
	}
	return filepath.WalkDir(d.Dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(name, &st); err != nil {
			return err
		}
		if st.Nlink > 1 && !e.IsDir() {
			return nil
		}
		return os.Lchown(name, int(d.User.Uid), int(d.User.Gid))
	})
}
