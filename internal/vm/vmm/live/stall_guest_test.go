package live

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// smallFS mounts a file system of a number of KiB. resize changes its size.
func smallFS(t *testing.T, kib int) (dir string, resize func(kib int)) {
	t.Helper()
	dir = t.TempDir()
	checkOK(t, unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)))
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, func(kib int) {
		t.Helper()
		checkOK(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%dk", kib)))
	}
}

// A Linux guest without room for its disk stalls, several times. It loses no written byte and sees
// no error. It can be saved when it runs again, and closed while it is stalled.
func TestAGuestWaitsForRoom(t *testing.T) {
	kvmtest.Require(t)
	const size, step = 64 << 20, 2 << 20
	dir, resize := smallFS(t, 512)
	own, err := os.OpenFile(filepath.Join(dir, "own"), os.O_RDWR|os.O_CREATE, 0o600)
	checkOK(t, err)
	v := bootServe(t, vmspec.Shape{MemoryMiB: 128, VCPUs: 2, Disks: 1}, nil, vmm.Disk{Overlay: own, Size: size})
	until := func(want vmm.State) {
		t.Helper()
		for end := time.Now().Add(bootLimit); v.Status().State != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it is %+v, not %s", v.Status(), want)
			}
		}
	}
	write := func(at int) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := v.try("disk-write /dev/vda %d %d", at, step)
			done <- err
		}()
		return done
	}
	for i := range 3 {
		done := write(i * step)
		until(vmm.StateStalled)
		got := v.Status().Health.Full
		for end := time.Now().Add(bootLimit); got == "" && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			got = v.Status().Health.Full // it is set after the state
		}
		t.Logf("write %d waits: %s", i, got)
		if !strings.Contains(got, unix.ENOSPC.Error()) {
			t.Errorf("it waits for %q", got)
		}
		capture := vmm.CaptureConfig{Disks: []*os.File{rebaseFile(t, nil)}, Live: i%2 == 0}
		for _, f := range []**os.File{&capture.Memory, &capture.State, &capture.Index} {
			*f = rebaseFile(t, nil)
		}
		_, _, errCapture := v.Capture(capture)
		if errPause := v.Pause(); !errors.Is(errPause, vmm.ErrNoRoom) || !errors.Is(errCapture, vmm.ErrNoRoom) {
			t.Errorf("paused: %v; captured: %v", errPause, errCapture)
		}
		select {
		case err := <-done:
			t.Fatalf("the guest's write has ended: %v", err)
		default:
		}
		resize(512 + (i+1)*(step>>10))
		until(vmm.StateRunning)
		if err := <-done; err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		t.Logf("write %d is done", i)
	}
	if got := v.ask(t, "dmesg I/O error"); got != "0" {
		t.Errorf("the guest's log has %s I/O errors", got)
	}
	want := make([]byte, 3*step)
	for i := range 3 {
		copy(want[i*step:], randomBytes(step, uint64(i*step)))
	}
	v.ask(t, "drop-caches")
	if got := v.ask(t, "disk-digest /dev/vda"); got != digestLine(append(bytes.Clone(want), make([]byte, size-len(want))...)) {
		t.Errorf("the guest reads %s", got)
	}
	f, err := os.OpenFile(own.Name(), os.O_RDWR, 0)
	checkOK(t, err)
	defer f.Close()
	disk, err := overlay.Open(f, size, nil)
	checkOK(t, err)
	got := make([]byte, len(want))
	if _, err := disk.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the overlay file lacks what was flushed (%v)", err)
	}
	v.save()
	if _, err := v.Resume(); err != nil {
		t.Fatal(err)
	}
	last := write(3 * step)
	until(vmm.StateStalled)
	checkOK(t, v.Close())
	if <-last == nil {
		t.Error("a write ended well for which there is no room")
	}
}
