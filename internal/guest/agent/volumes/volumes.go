//go:build linux

package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Volume is a volume to mount.
type Volume struct {
	Device   string // name of the block device, such as vdc
	Serial   string // its serial number, checked against the device's
	Bytes    int64  // its size
	Path     string // absolute path of the mount point, made if it is missing
	ReadOnly bool   // mount it read-only
}

// wait limits the time until a device has its capacity: the driver learns it from an interrupt, and sets
// it in a work queue of the kernel.
const wait = 10 * time.Second

// options of a mount: unwritten blocks of a volume are zero, so the kernel need not write empty inode tables.
const options = "noinit_itable"

// Mount mounts all volumes, in order. It stops at the first error.
func Mount(ctx context.Context, all []Volume) error {
	for _, v := range all {
		if err := mountOne(ctx, v); err != nil {
			return fmt.Errorf("mount volume on %s: %w", v.Path, err)
		}
	}
	return nil
}

func mountOne(ctx context.Context, v Volume) error {
	if strings.ContainsAny(v.Device, "/.") || v.Device == "" {
		return fmt.Errorf("%q is no block device", v.Device)
	}
	if !filepath.IsAbs(v.Path) || filepath.Clean(v.Path) != v.Path {
		return errors.New("the path is not absolute and clean")
	}
	if err := awaitSize(ctx, v); err != nil {
		return err
	}
	got, err := serial(v.Device)
	if err != nil {
		return err
	}
	if got != v.Serial {
		return fmt.Errorf("device %s is %q, want %q", v.Device, got, v.Serial)
	}
	if err := os.MkdirAll(v.Path, 0o755); err != nil {
		return err
	}
	flags := uintptr(unix.MS_NODEV | unix.MS_NOSUID)
	if v.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	device := "/dev/" + v.Device
	if err := unix.Mount(device, v.Path, "ext4", flags, options); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if v.ReadOnly {
		return nil
	}
	// The mount has read the superblock, so this comes from the kernel's cache.
	blocks, size, err := readSuper(device)
	if want := v.Bytes / max(size, 1); err == nil && want > blocks {
		err = grow(v.Path, want)
	}
	if err != nil {
		err = errors.Join(err, unix.Unmount(v.Path, unix.MNT_DETACH))
	}
	return err
}

// serials are the serial numbers of the disks, by name. A device never changes its number.
var serials sync.Map

// Prepare reads the serial numbers of the spare disks. A read is a request to the device, so it is done before the
// snapshot, and its clones need not wait for it.
func Prepare() {
	all, err := filepath.Glob("/sys/block/vd*")
	if err != nil {
		return
	}
	for _, dir := range all {
		_, _ = serial(filepath.Base(dir)) // an error shows when the disk is mounted
	}
}

func serial(device string) (string, error) {
	if s, ok := serials.Load(device); ok {
		return s.(string), nil
	}
	b, err := os.ReadFile(filepath.Join("/sys/block", device, "serial"))
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(string(b))
	serials.Store(device, s)
	return s, nil
}

// awaitSize waits until the kernel knows the device's capacity.
func awaitSize(ctx context.Context, v Volume) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	want := fmt.Sprint(v.Bytes / 512)
	var got string
	for pause := 200 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		b, err := os.ReadFile(filepath.Join("/sys/block", v.Device, "size"))
		if err != nil {
			return err
		}
		if got = strings.TrimSpace(string(b)); got == want {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("device %s has %s sectors after %s, want %s", v.Device, got, wait, want)
		}
	}
}

// grow makes a file system as large as its device.
func grow(dir string, blocks int64) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := resize(f, uint64(blocks)); err != nil {
		return fmt.Errorf("grow the file system to %d blocks: %w", blocks, err)
	}
	return nil
}
