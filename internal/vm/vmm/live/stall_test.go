package live

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// stalling is a machine without vCPUs, with its disk on a full device.
type stalling struct {
	*Machine
	t      *testing.T
	own    *os.File // its descriptor can be replaced by another file's
	driver *virtiotest.Driver

	attempts atomic.Int32 // the machine's attempts to resume the disk

	mu   sync.Mutex
	told []vmm.Health
}

func newStalling(t *testing.T) *stalling {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	checkOK(t, err)
	t.Cleanup(func() { full.Close() })
	s := &stalling{t: t, own: full}
	s.Machine = newMachine(Config{OnHealth: func(h vmm.Health) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, h)
	}})
	s.state = vmm.StateRunning
	s.disks.all = []vmm.Disk{{Overlay: full, Size: 1 << 20}}
	dev, err := s.disks.device(0)
	checkOK(t, err)
	retry := s.disks.overlays[0].retry
	s.disks.overlays[0].retry = func() { s.attempts.Add(1); retry() }
	s.driver, err = virtiotest.New(t, dev, virtiotest.NewMemory(1<<20)).Start(^uint64(0))
	checkOK(t, err)
	t.Cleanup(s.stall.end)
	return s
}

// become replaces the disk's own file.
func (s *stalling) become(f *os.File) {
	s.t.Helper()
	checkOK(s.t, unix.Dup3(int(f.Fd()), int(s.own.Fd()), unix.O_CLOEXEC))
}

// request puts a request into the queue and returns the address of its status.
func (s *stalling) request(op uint32, data []byte) (status uint64) {
	s.t.Helper()
	head := make([]byte, 16)
	binary.LittleEndian.PutUint32(head, op)
	out := append(head, data...)
	status = s.driver.Mem.Alloc(1)
	if _, ok := s.driver.Queues[0].Add(
		virtiotest.Seg{GPA: s.driver.Mem.Put(out), Len: len(out)}, virtiotest.Seg{GPA: status, Len: 1, Write: true}); !ok {
		s.t.Fatal("no descriptors")
	}
	s.driver.Queues[0].Kick()
	return status
}

func (s *stalling) answered() bool {
	_, _, ok := s.driver.Queues[0].Used()
	return ok
}

func (s *stalling) until(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("no %s; status %+v", what, s.Status())
		}
	}
}

func (s *stalling) news() []vmm.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

// A machine stalls while its disk has no room, refuses operations it cannot do then, and resumes by
// itself with the guest's writes. The guest sees no error.
func TestAMachineStandsStillUntilThereIsRoom(t *testing.T) {
	s := newStalling(t)
	data := randomBytes(4096, 1)
	status := s.request(blkOut, data)
	s.until("machine that stands still", func() bool { return s.Status().State == vmm.StateStalled })
	s.until("word of it", func() bool { return len(s.news()) == 1 })
	if h := s.news()[0]; !strings.Contains(h.Full, "disk 0") || !strings.Contains(h.Full, unix.ENOSPC.Error()) || h != s.Status().Health {
		t.Errorf("it tells of %+v, its status is %+v", h, s.Status())
	}
	if s.answered() {
		t.Error("the guest has an answer")
	}
	_, errState := s.SaveState()
	_, errDisks := s.SaveDisks(nil)
	if _, err := s.Resume(); err != nil { // it has begun, and resumes by itself
		t.Error(err)
	}
	for what, err := range map[string]error{
		"pause": s.Pause(), "save": errState, "save disks": errDisks,
	} {
		if !errors.Is(err, vmm.ErrNoRoom) || !strings.Contains(err.Error(), "disk 0") {
			t.Errorf("%s: %v, want %v", what, err, vmm.ErrNoRoom)
		}
	}
	before := s.attempts.Load()
	s.until("further attempts", func() bool { return s.attempts.Load() > before+1 })
	if got := s.news(); len(got) != 1 {
		t.Errorf("while there is no room it tells %+v", got)
	}

	own := rebaseFile(t, nil)
	s.become(own)
	s.until("answer", s.answered)
	s.until("machine that runs", func() bool { return s.Status().State == vmm.StateRunning })
	if got := s.driver.Mem.Bytes(status, 1)[0]; got != 0 {
		t.Errorf("the guest's write ends with status %d", got)
	}
	s.until("word of it", func() bool { return len(s.news()) == 2 })
	if h := s.news()[1]; h.Full != "" || h.Lost != "" {
		t.Errorf("it tells of %+v", h)
	}
	flushed := s.request(blkFlush, nil)
	if !s.answered() || s.driver.Mem.Bytes(flushed, 1)[0] != 0 {
		t.Error("the flush failed")
	}
	again, err := overlay.Open(own, 1<<20, nil)
	checkOK(t, err)
	got := make([]byte, len(data))
	if _, err := again.ReadAt(got, 0); err != nil || !slices.Equal(got, data) {
		t.Errorf("the file has something else than the guest wrote (%v)", err)
	}
}

// A machine paused while its disk has no room is paused: the request is in its queue. It stalls
// once it is resumed.
func TestAPauseWhileThereIsNoRoom(t *testing.T) {
	s := newStalling(t)
	s.mu.Lock() // the device's worker does not wait for the receiver of the report
	s.Machine.mu.Lock()
	s.state = vmm.StatePaused
	s.Machine.mu.Unlock()
	status := s.request(blkOut, make([]byte, 512))
	s.until("rest", func() bool {
		s.stall.mu.Lock()
		defer s.stall.mu.Unlock()
		return s.stall.full == nil
	})
	if got := s.Status().State; got != vmm.StatePaused || s.answered() {
		t.Errorf("it is %s, answered %v", got, s.answered())
	}
	s.driver.MMIO.Pause() // like Machine.Pause
	s.until("end of the attempts", func() bool {
		s.stall.mu.Lock()
		defer s.stall.mu.Unlock()
		return !s.stall.waiting
	})
	s.Machine.mu.Lock()
	s.state = vmm.StateRunning
	s.Machine.mu.Unlock()
	s.driver.MMIO.Resume()
	s.until("machine that stands still", func() bool { return s.Status().State == vmm.StateStalled })
	s.become(rebaseFile(t, nil))
	s.until("answer", s.answered)
	if got := s.driver.Mem.Bytes(status, 1)[0]; got != 0 {
		t.Errorf("the guest's write ends with status %d", got)
	}
	s.mu.Unlock()
}

// A stalled machine can be closed immediately.
func TestCloseWhileThereIsNoRoom(t *testing.T) {
	s := newStalling(t)
	s.request(blkOut, make([]byte, 512))
	s.until("machine that stands still", func() bool { return s.Status().State == vmm.StateStalled })
	s.stall.end()
	checkOK(t, s.driver.MMIO.Close())
	s.stall.noRoom(unix.ENOSPC) // from a late worker
	s.stall.end()
}

// A lost write is an I/O error for the guest, and so is each later one. The host knows of it, and
// does not save or capture.
func TestALostWriteIsTold(t *testing.T) {
	s := newStalling(t)
	var warned []error
	s.warnings.tell = func(err error) { warned = append(warned, err) }
	s.own.Close() // every write fails, for another reason than room
	for _, op := range []uint32{blkOut, blkFlush, blkOut} {
		status := s.request(op, make([]byte, map[uint32]int{blkOut: 512}[op]))
		if !s.answered() || s.driver.Mem.Bytes(status, 1)[0] != 1 {
			t.Errorf("operation %d has status %d", op, s.driver.Mem.Bytes(status, 1)[0])
		}
	}
	if got := s.Status(); got.State != vmm.StateRunning || !strings.Contains(got.Health.Lost, "disk 0") {
		t.Errorf("its status is %+v", got)
	}
	if len(warned) != 1 {
		t.Errorf("warned %q", warned)
	}
	s.until("word of it", func() bool { return len(s.news()) == 1 })
	s.state = vmm.StatePaused
	if _, err := s.SaveDisks([]*os.File{rebaseFile(t, nil)}); !errors.Is(err, vmm.ErrLost) {
		t.Errorf("saved: %v", err)
	}
}
