package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/images/debtool"
)

// dataDisk is the file of the appliance's data disk. It is sparse: its size on disk is the data that the
// appliance has written.
type dataDisk struct{ path string }

// ensure creates and formats the disk if it is missing, or enlarges it.
func (d dataDisk) ensure(ctx context.Context, gib int) error {
	size := int64(gib) << 30
	st, err := os.Stat(d.path)
	switch {
	case err == nil && st.Size() >= size:
		return nil // never shrunk
	case err == nil:
		return d.grow(ctx, size)
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	return d.create(ctx, size)
}

// create formats under a temporary name, so that a partially formatted disk is never mistaken for one with data.
func (d dataDisk) create(ctx context.Context, size int64) error {
	tmp := d.path + ".new"
	if err := makeSparse(tmp, size); err != nil {
		return fmt.Errorf("create data disk: %w", err)
	}
	defer os.Remove(tmp)
	// verity: the kernel may protect layers. lazy_*: a sparse file needs no zeros written. 1 % is reserved for
	// root, who is the only user anyway.
	err := runTool(ctx, "mkfs.ext4", "-q", "-F", "-m", "1", "-O", "verity",
		"-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,assume_storage_prezeroed=1", "-L", "forkd-data", tmp)
	if err != nil {
		return fmt.Errorf("format data disk: %w", err)
	}
	return os.Rename(tmp, d.path)
}

func (d dataDisk) grow(ctx context.Context, size int64) error {
	if err := makeSparse(d.path, size); err != nil {
		return fmt.Errorf("grow data disk: %w", err)
	}
	// resize2fs requires a checked file system; status 1 means repaired.
	var exit *exec.ExitError
	if err := runTool(ctx, "e2fsck", "-f", "-p", d.path); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		return fmt.Errorf("check data disk: %w", err)
	}
	if err := runTool(ctx, "resize2fs", d.path); err != nil {
		return fmt.Errorf("grow data disk: %w", err)
	}
	return nil
}

func makeSparse(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// runTool runs a program of e2fsprogs, which is often outside of a user's PATH.
func runTool(ctx context.Context, name string, args ...string) error {
	path, err := lookTool(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func lookTool(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if _, err := os.Stat(dir + name); err == nil {
			return dir + name, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: install e2fsprogs (%s)", name, debtool.Installer())
}
