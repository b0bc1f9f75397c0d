package procnode

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bind mounts a file or a folder at another path, which it makes.
func bind(from, to string, file bool) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { // #nosec G301 -- containers' users read it
		return err
	}
	if file {
		f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o644) // #nosec G302 -- covered by the mount
		if err != nil {
			return err
		}
		f.Close()
	} else if err := os.MkdirAll(to, 0o755); err != nil { // #nosec G301 -- covered by the mount
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, to, err)
	}
	return nil
}

// readOnly makes a mount read-only.
func readOnly(path string) error {
	if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	return nil
}

// unmount removes a mount, and those below it.
func unmount(path string) { _ = unix.Unmount(path, unix.MNT_DETACH) }
