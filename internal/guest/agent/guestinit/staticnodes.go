package guestinit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of modules.devname. Debian's kernels have a dozen lines.
const (
	maxDevname = 64 << 10
	maxNodes   = 256
)

// makeStaticNodes makes the device files of modules that are not loaded, as kmod-static-nodes.service
// does. The kernel loads the module when a program opens the file. depmod lists the files in
// modules.devname. An image without kernel modules has no such list.
func makeStaticNodes() error {
	var name unix.Utsname
	_ = unix.Uname(&name) // never fails
	f, err := os.Open("/lib/modules/" + unix.ByteSliceToString(name.Release[:]) + "/modules.devname")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxDevname))
	if err != nil {
		return fmt.Errorf("read static nodes: %w", err)
	}
	var errs []error
	for _, n := range parseDevname(string(b)) {
		path := "/dev/" + n.name
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755))
		if err := unix.Mknod(path, n.mode|0o600, int(n.dev)); err != nil && !errors.Is(err, fs.ErrExist) {
			errs = append(errs, fmt.Errorf("make %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// staticNode is a device file below /dev.
type staticNode struct {
	name string
	mode uint32
	dev  uint64
}

// parseDevname reads lines such as "tun net/tun c10:200". It skips other lines.
func parseDevname(text string) (out []staticNode) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || strings.HasPrefix(f[0], "#") || !filepath.IsLocal(f[1]) || len(out) == maxNodes {
			continue
		}
		var kind rune
		var major, minor uint32
		if n, err := fmt.Sscanf(f[2], "%c%d:%d", &kind, &major, &minor); n != 3 || err != nil {
			continue
		}
		mode, ok := map[rune]uint32{'c': unix.S_IFCHR, 'b': unix.S_IFBLK}[kind]
		if ok {
			out = append(out, staticNode{f[1], mode, unix.Mkdev(major, minor)})
		}
	}
	return out
}
