package live

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/vmm"
)

func init() {
	guestCommands["disk-digest"] = cmdDiskDigest
	guestCommands["disk-write"] = cmdDiskWrite
	guestCommands["disk-read"] = cmdDiskRead
	guestCommands["entropy"] = cmdEntropy
	guestCommands["read-file"] = func(args []string) (string, error) {
		b, err := os.ReadFile(args[0])
		return strings.TrimSpace(string(b)), err
	}
}

func cmdDiskDigest(args []string) (string, error) {
	f, err := os.Open(args[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return fmt.Sprintf("%d %x", n, h.Sum(nil)), err
}

// cmdDiskWrite writes and flushes: DEVICE OFFSET LENGTH. The content depends on the offset.
func cmdDiskWrite(args []string) (string, error) {
	at, _ := strconv.Atoi(args[1])
	n, _ := strconv.Atoi(args[2])
	f, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	_, err = f.WriteAt(randomBytes(n, uint64(at)), int64(at))
	return "", errors.Join(err, f.Sync(), f.Close())
}

// cmdDiskRead reads without the page cache: DEVICE OFFSET.
func cmdDiskRead(args []string) (string, error) {
	at, _ := strconv.ParseInt(args[1], 10, 64)
	fd, err := unix.Open(args[0], unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return "", err
	}
	defer unix.Munmap(page)
	n, err := unix.Pread(fd, page, at)
	return fmt.Sprint(n), err
}

func cmdEntropy([]string) (string, error) {
	f, err := os.Open("/dev/hwrng")
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 64)
	_, err = io.ReadFull(f, b)
	return hex.EncodeToString(b), err
}

const guestDiskSize = 4 << 20

// guestDisks returns a read-only, a writable and a doomed disk of the guest. The caller keeps the
// paths.
func guestDisks(t *testing.T) (paths [3]string, open func() []vmm.Disk) {
	t.Helper()
	dir := t.TempDir()
	for i := range paths {
		paths[i] = filepath.Join(dir, fmt.Sprint("disk", i))
		if err := os.WriteFile(paths[i], randomBytes(guestDiskSize, uint64(i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths, func() (disks []vmm.Disk) {
		for i, p := range paths {
			f, err := os.OpenFile(p, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			disks = append(disks, vmm.Disk{File: f, ReadOnly: i != 1})
		}
		return disks
	}
}

func testDisks(t *testing.T, v *serveVM, paths [3]string) {
	t.Run("read whole", func(t *testing.T) {
		want := digestLine(randomBytes(guestDiskSize, 0))
		if got := v.ask(t, "disk-digest /dev/vda"); got != want {
			t.Errorf("the guest read %s, want %s", got, want)
		}
	})
	t.Run("written and flushed", func(t *testing.T) {
		const at, n = 1<<20 + 4096, 300_000
		v.ask(t, "disk-write /dev/vdb %d %d", at, n)
		want := randomBytes(guestDiskSize, 1)
		copy(want[at:], randomBytes(n, at))
		if got, err := os.ReadFile(paths[1]); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the host's file is not what the guest wrote (%v)", err)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		if ro := v.ask(t, "read-file /sys/block/vda/ro"); ro != "1" {
			t.Errorf("ro of the disk is %s, want 1", ro)
		}
		if _, err := v.try("disk-write /dev/vda 0 4096"); err == nil {
			t.Error("the guest wrote to a read-only disk")
		}
		if got, err := os.ReadFile(paths[0]); err != nil || !bytes.Equal(got, randomBytes(guestDiskSize, 0)) {
			t.Errorf("a read-only disk has changed (%v)", err)
		}
	})
	t.Run("cut short", func(t *testing.T) {
		if err := os.Truncate(paths[2], guestDiskSize/2); err != nil {
			t.Fatal(err)
		}
		if got := v.ask(t, "disk-read /dev/vdc 0"); got != "4096" {
			t.Errorf("read %s bytes of what is still there, want 4096", got)
		}
		if got, err := v.try("disk-read /dev/vdc %d", guestDiskSize-4096); err == nil || !strings.Contains(err.Error(), unix.EIO.Error()) {
			t.Errorf("read %q, %v of what is not there, want %v", got, err, unix.EIO)
		}
		// As a virtual machine's disk it must have its size again before a save can be restored.
		if err := os.Truncate(paths[2], guestDiskSize); err != nil {
			t.Fatal(err)
		}
		v.ask(t, "disk-read /dev/vdc %d", guestDiskSize-4096)
	})
}

func testEntropy(t *testing.T, v *serveVM) {
	if got := v.ask(t, "read-file /sys/class/misc/hw_random/rng_current"); !strings.HasPrefix(got, "virtio_rng") {
		t.Errorf("the guest draws from %q, want virtio_rng", got)
	}
	a, b := v.ask(t, "entropy"), v.ask(t, "entropy")
	if a == b || strings.Count(a, "00") > 16 {
		t.Errorf("the guest drew %s and %s", a, b)
	}
}

// digestLine returns the expected answer to disk-digest for a disk of this content.
func digestLine(b []byte) string { return fmt.Sprintf("%d %x", len(b), sha256.Sum256(b)) }
