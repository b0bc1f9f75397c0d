package live

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/cut"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// A capture takes a running machine's memory and state at one instant, the pause. Pre-copy rounds
// copy the guest's private dirty pages while it runs: each round write-protects the pages written
// since the last round and copies them. The pause copies the rest to a buffer (stop-and-copy),
// which is written to the file once the guest runs again. Pages beyond the buffer go to the file
// during the pause. A capture holds every private dirty page. Pages stay write-protected after any
// capture, successful or not; a tracker knows which pages it has protected itself.

// Bounds of the pre-copy rounds.
const (
	maxRounds = 20
	// enoughLeft is the number of bytes allowed to remain for the pause if the caller sets no
	// limit. Any busy guest soon rewrites fewer.
	enoughLeft = 512 << 10
	// copyFloor is a copy speed reached by every host, in bytes per second. It is used until a
	// speed is measured.
	copyFloor = 200 << 20
)

// standstill pauses and resumes the guest for a capture. Machine implements it.
type standstill interface {
	Pause() error
	SaveState() ([]byte, error)
	SaveDigest(*os.File) error
	Resume() (runningAt int64, err error)
}

// captureOp is one capture in progress.
type captureOp struct {
	vmm.CaptureConfig
	mem      *guestmem.Map
	disks    *diskSet
	guest    standstill
	tracker  *guestmem.Tracker // nil if the guest is paused for the whole copy
	taken    extent.PageSet    // pages in Memory
	left     []extent.Run      // written and not copied since
	tail     pauseBuffer
	state    []byte
	switched int         // disks switched to their new files
	speed    float64     // copy speed in bytes per second
	last     time.Time   // end of the previous pause step
	buffer   int64       // limit of tail, in bytes
	group    *cut.Member // nil if the capture is no part of a cut
	res      vmm.CaptureResult
}

// Capture captures a running machine. The guest runs again afterwards, also on failure; only a
// successful capture with Stay leaves it paused. When Capture returns, the instant is fixed; finish
// writes the remaining data to the files and closes them. The capture owns the files from the call
// on. A file of Disks becomes the machine's once its disk has switched to it;
// Status.OverlayGeneration reports the switch, also for a failed capture.
func (m *Machine) Capture(c vmm.CaptureConfig) (finish func() error, res vmm.CaptureResult, err error) {
	return m.capture(m, c)
}

func (m *Machine) capture(guest standstill,
	c vmm.CaptureConfig) (finish func() error, res vmm.CaptureResult, err error) {
	k := &captureOp{
		CaptureConfig: c, mem: m.mem, disks: &m.disks, guest: guest,
		taken: extent.NewPageSet(m.mem.Size()), speed: copyFloor,
	}
	if k.buffer = m.pauseBuffer; k.buffer <= 0 {
		k.buffer = vmm.PauseBuffer(m.mem.Size())
	}
	k.res.Mechanism = "none"
	if c.Cut != nil {
		k.group = cut.Join(c.Cut)
		defer c.Cut.Close() // the others learn of a failure by it
	}
	if err = m.check(vmm.StateRunning); err == nil {
		err = k.runRetaining()
	}
	if err != nil {
		k.tail.free()
		c.CloseOutput()
		closeFiles(c.Disks[min(k.switched, len(c.Disks)):])
		return nil, res, err
	}
	return k.finish, k.res, nil
}

// check returns an error unless the machine is in state want. The state does not change afterwards:
// only another control call pauses the machine, and control calls are serialized.
func (m *Machine) check(want vmm.State) error {
	err := m.lockIn(want)
	if err == nil {
		m.mu.Unlock()
	}
	return err
}

// runRetaining runs the capture while memory is retained: the guest's reports of free memory are
// answered, but no memory is discarded. When it returns, all content of the capture has been
// copied.
func (k *captureOp) runRetaining() error {
	defer k.mem.Retain()()
	return k.run()
}

func (k *captureOp) run() error {
	if len(k.Disks) != len(k.disks.overlays) {
		return fmt.Errorf("%d files for %d disks with overlays", len(k.Disks), len(k.disks.overlays))
	}
	if err := k.Memory.Truncate(k.mem.Size()); err != nil {
		return fmt.Errorf("size memory file: %w", err)
	}
	if err := k.find(k.mem.PrivateDirty); err != nil {
		return err
	}
	failpoint.Here(failpoint.CaptureBegun)
	if k.Live || extent.Bytes(k.left) > k.buffer {
		if err := k.preCopy(); err != nil {
			return err
		}
	}
	return k.stopAndCopy()
}

// find records the ranges to copy next.
func (k *captureOp) find(scan func(func(offset, length int64) error) error) error {
	k.left = k.left[:0]
	return scan(func(offset, length int64) error {
		k.left = append(k.left, extent.Run{Offset: offset, Length: length})
		return nil
	})
}

// preCopy copies while the guest runs, until the rest fits the pause or stops shrinking.
func (k *captureOp) preCopy() error {
	tracker, err := k.mem.Track()
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	k.tracker = tracker
	k.res.Mechanism = "wp-async"
	for before := int64(1 << 62); k.res.Rounds < maxRounds; {
		left := extent.Bytes(k.left)
		if left <= k.enough() || left > before-before/8 && k.res.Rounds > 2 {
			return nil
		}
		before = left
		if err := k.round(left - k.spare()); err != nil {
			return err
		}
		k.res.Rounds++
		failpoint.Here(failpoint.CaptureRound)
		if err := k.find(tracker.Written); err != nil {
			return err
		}
	}
	return nil
}

// enough returns the number of bytes allowed to remain for the pause. They fit the buffer together
// with as many bytes again, which the guest may write before it stops.
func (k *captureOp) enough() int64 {
	switch {
	case !k.Live:
		return k.buffer
	case k.Max == 0:
		return min(enoughLeft, k.buffer/2)
	}
	return min(max(enoughLeft, int64(k.speed*(k.Max/4).Seconds())), k.buffer/2)
}

// spare returns the number of bytes a round may leave for the pause. If the capture is not live, it
// leaves as much as is sure to fit the buffer, to track and copy no more ahead than necessary.
func (k *captureOp) spare() int64 {
	if k.Live {
		return 0
	}
	return k.buffer / 2
}

// round copies the first n bytes of the rest. Each part is copied once it is armed, so the next
// round finds pages written meanwhile.
func (k *captureOp) round(n int64) error {
	start, copied := time.Now(), int64(0)
	err := k.tracker.Arm(extent.First(k.left, n), func(r extent.Run) error {
		if err := k.write(k.mem.Linear()[r.Offset:r.End()], r.Offset); err != nil {
			return err
		}
		k.taken.Add(r.Offset, r.Length)
		copied += r.Length
		return nil
	})
	if took := time.Since(start).Seconds(); took > 0 {
		k.speed = float64(copied) / took
	}
	return err
}

func (k *captureOp) write(p []byte, at int64) error {
	if _, err := k.Memory.WriteAt(p, at); err != nil {
		return fmt.Errorf("write memory at %d: %w", at, err)
	}
	return nil
}

// stopAndCopy pauses the guest at the instant of the capture and copies the rest.
func (k *captureOp) stopAndCopy() error {
	if err := k.inTime(0); err != nil { // before the pause, and before memory is reserved
		return err
	}
	// The guest keeps writing until it stops.
	if err := k.tail.reserve(min(k.buffer, 2*extent.Bytes(k.left)+2*enoughLeft)); err != nil {
		return err
	}
	if err := k.awaitGroup(); err != nil {
		return err
	}
	start := time.Now()
	began := startgate.Now()
	k.last = start
	if err := k.guest.Pause(); err != nil {
		return err
	}
	k.lap("stop")
	failpoint.Here(failpoint.CapturePaused)
	err := k.groupPaused()
	if err == nil {
		err = k.copyLeft(start)
	}
	if err == nil && k.Digest != nil {
		err = k.guest.SaveDigest(k.Digest) // after all scans of page tables, since this maps pages
		k.lap("digest")
	}
	failpoint.Here(failpoint.CaptureHeld)
	if err == nil {
		err = k.groupDone()
	}
	if err == nil && k.Stay {
		k.res.Pause = k.last.Sub(start)
		return nil
	}
	at, resumeErr := k.guest.Resume()
	ran := time.Now()
	if resumeErr == nil {
		ran = start.Add(time.Duration(at - began)) // before this thread got a CPU again
	}
	k.res.RunningAt = at
	k.lapUntil("resume", ran)
	k.res.Pause = k.last.Sub(start)
	if err != nil {
		return err
	}
	return resumeErr
}

// lap records the time since the previous lap as a step of the pause.
func (k *captureOp) lap(name string) { k.lapUntil(name, time.Now()) }

func (k *captureOp) lapUntil(name string, now time.Time) {
	k.res.Steps = append(k.res.Steps, vmm.PauseStep{Name: name, Took: now.Sub(k.last)})
	k.last = now
}

func (k *captureOp) copyLeft(start time.Time) error {
	if err := k.scanAndSave(); err != nil {
		return err
	}
	k.res.PausedBytes = extent.Bytes(k.left)
	if err := k.inTime(time.Since(start)); err != nil {
		return err
	}
	if err := k.copyPaused(); err != nil { // before any disk switches: a full file system fails here
		return err
	}
	k.lap("copy")
	if !k.Force { // before any disk switches to its new file
		if err := k.disks.lost(); err != nil {
			return fmt.Errorf("capture disk: %w", err)
		}
	}
	for i, d := range k.disks.overlays {
		if err := k.disks.switchOverlay(d, k.Disks[i]); err != nil {
			return fmt.Errorf("capture disk: %w", err)
		}
		k.switched++
	}
	k.lap("disks")
	return nil
}

// scanAndSave finds the remaining pages and saves the state meanwhile, which takes less time except
// for very small guests. Saving neither makes a page private nor writes one. KVM's own write at
// this time (the steal-time mark of a stopped vCPU) goes only to a writable page
// (kvm_steal_time_set_preempted in arch/x86/kvm/x86.c), and the scan reports such a page in any
// case.
func (k *captureOp) scanAndSave() error {
	scan := k.mem.PrivateDirty
	if k.tracker != nil {
		scan = k.tracker.Written
	}
	saved := make(chan error, 1)
	go func() {
		state, err := k.guest.SaveState()
		k.state = state
		saved <- err
	}()
	err := k.find(scan)
	k.lap("scan")
	err = errors.Join(err, <-saved)
	k.lap("state") // the remaining time of saving
	return err
}

// inTime returns ErrPause if the pause would be too long: the time taken so far plus the estimate
// for copying the rest.
func (k *captureOp) inTime(took time.Duration) error {
	if k.Max == 0 {
		return nil
	}
	left := extent.Bytes(k.left)
	buffered := min(left, k.buffer)
	// The buffer is memory, several times as fast as the file by which speed was measured.
	seconds := (float64(buffered)/2 + float64(left-buffered)) / k.speed
	if will := took + time.Duration(seconds*float64(time.Second)); will > k.Max {
		return fmt.Errorf("%w: %d bytes are left, about %s", vmm.ErrPause, left, will.Round(100*time.Microsecond))
	}
	return nil
}

// copyPaused copies the rest to the buffer, and to the file once the buffer is full.
func (k *captureOp) copyPaused() error {
	for _, r := range k.left {
		p := k.mem.Linear()[r.Offset:r.End()]
		if n := k.tail.add(p); n < len(p) {
			if err := k.write(p[n:], r.Offset+int64(n)); err != nil {
				return err
			}
		}
		k.taken.Add(r.Offset, r.Length)
	}
	k.res.Bytes = k.taken.Bytes()
	return nil
}

// finish writes the buffered pages and the other outputs of the capture.
func (k *captureOp) finish() error {
	defer k.CloseOutput()
	defer k.tail.free()
	failpoint.Here(failpoint.CaptureResumed)
	held := k.tail.held()
	for _, r := range k.left {
		if len(held) == 0 { // the rest is already in the file
			break
		}
		n := min(r.Length, int64(len(held)))
		if err := k.write(held[:n], r.Offset); err != nil {
			return err
		}
		held = held[n:]
	}
	k.tail.free() // not needed while the rest is written
	if _, err := k.State.Write(k.state); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if _, err := k.Index.Write(k.taken.Encode()); err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	if err := k.disks.saveMaps(); err != nil {
		return err
	}
	failpoint.Here(failpoint.CaptureWritten)
	return nil
}
