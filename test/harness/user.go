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

// give has the user own what is in the daemon's directories, at each start. Its data may be elsewhere, in a
// folder that the test has made for it.
func (d *Daemon) give() error {
	err := d.Give(d.Dir)
	if !strings.HasPrefix(d.Data, d.Dir+"/") {
		err = errors.Join(err, d.Give(filepath.Dir(d.Data)))
	}
	return err
}

// Give has the ordinary user, if there is one, own what is in one of the daemon's folders: what a test puts
// there while the daemon runs is root's. Programs and images' files may be links to everybody's, and are
// readable by all.
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
