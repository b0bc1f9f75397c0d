package live

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/pagedigest"
	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func init() {
	guestCommands["use-memory"] = cmdUseMemory
	guestCommands["free-memory"] = cmdFreeMemory
	guestCommands["churn"] = cmdChurn
}

// used is the memory taken by the guest's process with use-memory.
var used struct {
	sync.Mutex
	memory []byte
	churns atomic.Bool
}

// cmdUseMemory takes a number of MiB and writes to each page.
func cmdUseMemory(args []string) (string, error) {
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	used.Lock()
	defer used.Unlock()
	if used.memory != nil {
		return "", errors.New("it has some")
	}
	used.memory, err = written(mib)
	return "", err
}

func written(mib int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	for at := 0; at < len(b); at += 4096 {
		b[at], b[at+4095] = byte(at>>12)|1, 0xee
	}
	return b, nil
}

func cmdFreeMemory([]string) (string, error) {
	used.Lock()
	defer used.Unlock()
	err := unix.Munmap(used.memory)
	used.memory = nil
	return "", err
}

// cmdChurn repeatedly takes and frees a number of MiB. With 0 it stops.
func cmdChurn(args []string) (string, error) {
	mib, err := strconv.Atoi(args[0])
	if err != nil || mib == 0 {
		used.churns.Store(false)
		return "", err
	}
	used.churns.Store(true)
	go func() {
		for used.churns.Load() {
			if b, err := written(mib); err == nil {
				unix.Munmap(b)
			}
			time.Sleep(300 * time.Millisecond) // elapses: what is free for a while is reported
		}
	}()
	return "", nil
}

// ownMiB returns the size of the machine's private dirty pages.
func (v *serveVM) ownMiB(t *testing.T) int64 {
	t.Helper()
	var own int64
	checkOK(t, v.mem.PrivateDirty(func(_, length int64) error { own += length; return nil }))
	return own >> 20
}

// usesAndFrees makes the guest take and free memory, and waits until the memory is back at the
// host.
func (v *serveVM) usesAndFrees(t *testing.T, mib int64) {
	t.Helper()
	before := v.ownMiB(t)
	v.ask(t, "use-memory %d", mib)
	full := v.ownMiB(t)
	if full < before+mib/2 { // it may have had the rest before
		t.Fatalf("with %d MiB more in use it has %d MiB of its own, and had %d", mib, full, before)
	}
	v.ask(t, "free-memory")
	began := time.Now()
	for {
		own := v.ownMiB(t)
		if own <= full-mib*3/4 {
			t.Logf("%d MiB of its own, %d with %d MiB in use, %d again %v after", before, full, mib, own, time.Since(began))
			return
		}
		if time.Since(began) > bootLimit {
			t.Fatalf("%d MiB of its own, %d with %d MiB in use, still %d after %v", before, full, mib, own, bootLimit)
		}
		time.Sleep(100 * time.Millisecond) // the guest needs time: it reports every two seconds
	}
}

// Memory freed by Debian's kernel goes back to the host, for a booted guest and for a clone.
// Captures of a guest that frees all the time are correct.
func TestFreedMemoryComesBack(t *testing.T) {
	parent := bootServe(t, vmspec.Shape{MemoryMiB: 384, VCPUs: 1}, nil)
	balloon := parent.devices.slots[len(parent.devices.slots)-1].transport
	if balloon.Device().Type() != virtio.TypeBalloon || !balloon.Active() {
		t.Fatal("the guest does not use its balloon")
	}
	parent.usesAndFrees(t, 160)
	s := parent.save()
	clone := s.restoreServe(t, parent, 4, [16]byte{1})
	clone.usesAndFrees(t, 160)
	clone.ask(t, "churn 64")
	for i := range 6 {
		capturedAsItWas(t, clone.Machine, s.memory, i%3 != 2)
		time.Sleep(time.Second) // elapses: it frees, and reports
	}
	clone.ask(t, "churn 0")
	if got := clone.ask(t, "dmesg BUG:"); got != "0" {
		t.Errorf("the guest's kernel complains %s times", got)
	}
	for i, slot := range clone.devices.slots {
		if slot.transport.NeedsReset() {
			t.Errorf("device %d is broken", i)
		}
	}
}

// capturedAsItWas captures a machine that was restored from a file. It compares each page of the
// file overlaid with the capture to the guest's memory.
func capturedAsItWas(t *testing.T, m *Machine, base *os.File, live bool) {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		checkOK(t, err)
		return f
	}
	finish, res, err := m.Capture(vmm.CaptureConfig{
		Memory: open("memory"), State: open("state"), Index: open("index"), Digest: open("digest"), Live: live,
	})
	checkOK(t, err)
	checkOK(t, finish())
	memory, index, digest := open("memory"), open("index"), open("digest")
	defer closeFiles([]*os.File{memory, index, digest})
	set, err := extent.DecodePageSet(index, m.mem.Size())
	checkOK(t, err)
	want, err := pagedigest.Read(digest, m.mem.Size())
	checkOK(t, err)
	var got pagedigest.Digests
	got.Memory, err = pagedigest.Of(base, m.mem.Size(), nil)
	checkOK(t, err)
	for r := range set.Runs() {
		b := make([]byte, r.Length)
		_, err := memory.ReadAt(b, r.Offset)
		checkOK(t, err)
		for at := int64(0); at < r.Length; at += pagedigest.PageSize {
			got.Memory[(r.Offset+at)/pagedigest.PageSize] = pagedigest.Hash(b[at:][:pagedigest.PageSize])
		}
	}
	t.Logf("live %v: %d rounds, %d MiB, paused for %v", live, res.Rounds, res.Bytes>>20, res.Pause)
	if err := pagedigest.Compare(got, want); err != nil {
		t.Fatalf("the image is not what the guest had: %v", err)
	}
}
