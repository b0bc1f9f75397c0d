package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// UserVariable makes a test with root rights start all daemons as the ordinary user with this
// number. The harness gives the user the devices of VMs, for as long as the host runs, and the
// daemons' directories. The user has no cgroups and no own range of IDs for user namespaces.
const UserVariable = "FORKD_TEST_USER"

// Ordinary returns that user, or nil if daemons run as the user of the test.
func Ordinary() *syscall.Credential {
	id, err := strconv.ParseUint(os.Getenv(UserVariable), 10, 32)
	if err != nil || id == 0 || os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}
}

// devices are the devices of VMs, to which distributions give a group access.
var devices = []string{"/dev/kvm", "/dev/userfaultfd"}

// become sets the daemon's user to the ordinary user, if there is one.
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

// give makes the user own the daemon's directories, at each start. Its data may be elsewhere, in a
// folder of the test.
func (d *Daemon) give() error {
	err := d.Give(d.Dir)
	if !strings.HasPrefix(d.Data, d.Dir+"/") {
		err = errors.Join(err, d.Give(filepath.Dir(d.Data)))
	}
	return err
}

// Give makes the ordinary user, if there is one, the owner of a daemon's folder. Files that a test
// adds while the daemon runs belong to root. Programs and image files may be links to files of all
// daemons; they are readable by all users.
func (d *Daemon) Give(dir string) error {
	user := Ordinary()
	if user == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
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
		return os.Lchown(name, int(user.Uid), int(user.Gid))
	})
}
