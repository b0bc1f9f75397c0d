package guestinit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	newRoot  = "/newroot"
	lowerDir = "/mnt/lower"
	upperDir = "/mnt/upper"

	// deviceWait limits the wait for a disk.
	deviceWait = 10 * time.Second
)

// mountRoot mounts the root image with a writable layer above it on newRoot.
func mountRoot(device, upper string) error {
	if err := awaitDevice(device); err != nil {
		return err
	}
	for _, dir := range []string{newRoot, lowerDir, upperDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	if err := unix.Mount(device, lowerDir, "erofs", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount root image %s (erofs): %w", device, err)
	}
	if err := mountUpper(upper, upperDir); err != nil {
		return err
	}
	opts := "lowerdir=" + lowerDir + ",upperdir=" + upperDir + "/files,workdir=" + upperDir + "/work"
	if err := unix.Mount("overlay", newRoot, "overlay", 0, opts); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	return nil
}

// mountUpper mounts the overlay's writable layer: a disk, or memory if device is empty.
func mountUpper(device, dir string) error {
	if err := mountWritable(device, dir); err != nil {
		return err
	}
	for _, sub := range []string{dir + "/files", dir + "/work", dir + "/dirs"} {
		if err := os.Mkdir(sub, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { // exists on a second boot
			return fmt.Errorf("make %s: %w", sub, err)
		}
	}
	return nil
}

func mountWritable(device, dir string) error {
	if device == "" {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NODEV, "mode=0755,size=75%"); err != nil {
			return fmt.Errorf("mount writable layer in memory: %w", err)
		}
		return nil
	}
	if err := awaitDevice(device); err != nil {
		return err
	}
	if err := unix.Mount(device, dir, "ext4", unix.MS_NODEV|unix.MS_NOATIME, upperMount); err != nil {
		return fmt.Errorf("mount writable layer %s (ext4): %w", device, err)
	}
	return nil
}

// upperMount holds the mount options of the writable disk. discard returns the space of deleted
// files to the host. errors=remount-ro applies if the host has lost a write: otherwise the file
// system's view of its own structure would soon be wrong without notice. MS_NOATIME is set as well,
// because reading files must not write to the disk of a child that only reads.
const upperMount = "discard,errors=remount-ro"

func awaitDevice(device string) error {
	deadline := time.Now().Add(deviceWait)
	for {
		_, err := os.Stat(device)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("find block device: %w", err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// switchRoot makes newRoot the root permanently. The initramfs stays mounted below it and is
// invisible. The files that cost memory were removed before.
func switchRoot() error {
	for _, m := range early {
		to := newRoot + m.target
		if err := os.MkdirAll(to, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", to, err)
		}
		if err := unix.Mount(m.target, to, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", m.target, err)
		}
	}
	if err := os.Chdir(newRoot); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	return os.Chdir("/")
}
