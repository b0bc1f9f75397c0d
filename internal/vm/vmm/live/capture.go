package live

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// A capture takes a running machine's memory and state at one instant, the
// pause. The guest's private dirty pages are copied before, in pre-copy rounds,
// while it runs: each round write-protects the pages that were written since
// the last and copies them. What is left is copied to a buffer during the pause (stop-and-copy),
// and from there to the file when the guest runs again; what does not fit goes to
// the file at once. A capture holds every private dirty page. Pages stay write-protected when it
// is over, however it ended; a tracker knows which it has protected itself.

// Bounds of the pre-copy rounds.
const (
	maxRounds = 20
	// enoughLeft is what may be left for the pause if no limit is asked for, in
	// bytes: less is soon written again by any guest that works.
	enoughLeft = 512 << 10
	// copyFloor is a speed that every host reaches, in bytes per second; used until one is measured.
	copyFloor = 200 << 20
)

// standstill is how a capture stops and resumes the guest: the machine itself.
type standstill interface {
	Pause() error
	SaveState() ([]byte, error)
	SaveDigest(*os.File) error
	Resume() (runningAt int64, err error)
}

// captureOp is one capture under way.
type captureOp struct {
	vmm.CaptureConfig
	mem      *guestmem.Map
	disks    *diskSet
	guest    standstill
	tracker  *guestmem.Tracker // nil: the guest stands still for all of it
	taken    extent.PageSet    // pages in Memory
	left     []extent.Run      // written, and not copied since
	tail     pauseBuffer
	state    []byte
	switched int       // disks that went on in their new files
	speed    float64   // of copying, bytes per second
	last     time.Time // end of the pause's last lap
	buffer   int64     // bound of tail, in bytes
	res      vmm.CaptureResult
}

// Capture captures a running machine, which keeps running even on failure, unless it is to Stay. When it
// returns, the instant is held; finish writes what is not in the files yet and
// closes them. The files are the capture's from the call on; one of Disks becomes
// the machine's if its disk went on in it, which Status.OverlayGeneration tells also if the
// capture failed.
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

// check refuses a machine that is in another state. It stays in it meanwhile: nothing but another
// control call pauses it, and they come one at a time.
func (m *Machine) check(want vmm.State) error {
	err := m.lockIn(want)
	if err == nil {
		m.mu.Unlock()
	}
	return err
}

// runRetaining runs while the guest's reports of free memory are answered, and nothing is discarded. When
// it is over, all that the capture shows has been copied.
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

// find notes what is to be copied now.
func (k *captureOp) find(scan func(func(offset, length int64) error) error) error {
	k.left = k.left[:0]
	return scan(func(offset, length int64) error {
		k.left = append(k.left, extent.Run{Offset: offset, Length: length})
		return nil
	})
}

// preCopy copies while the guest runs, until what is left fits the pause or does
// not become less.
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

// enough is how many bytes may be left for the pause. It fits the buffer, together
// with as much again that the guest may write until it stands.
func (k *captureOp) enough() int64 {
	switch {
	case !k.Live:
		return k.buffer
	case k.Max == 0:
		return min(enoughLeft, k.buffer/2)
	}
	return min(max(enoughLeft, int64(k.speed*(k.Max/4).Seconds())), k.buffer/2)
}

// spare is how much a round may leave to the pause: with a capture that is not live
// as much as is sure to fit the buffer, so that no more is tracked and copied ahead
// than must be.
func (k *captureOp) spare() int64 {
	if k.Live {
		return 0
	}
	return k.buffer / 2
}

// round copies the first n bytes of what is left, each part when it is armed: what is written
// meanwhile is found by the next round.
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

// stopAndCopy is the pause: the instant that the capture shows.
func (k *captureOp) stopAndCopy() error {
	if err := k.inTime(0); err != nil { // before the guest notices anything, and memory is taken
		return err
	}
	// The guest writes on until it stands.
	if err := k.tail.reserve(min(k.buffer, 2*extent.Bytes(k.left)+2*enoughLeft)); err != nil {
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
	err := k.copyLeft(start)
	if err == nil && k.Digest != nil {
		err = k.guest.SaveDigest(k.Digest) // after all that the capture finds out of page tables: this maps pages
		k.lap("digest")
	}
	failpoint.Here(failpoint.CaptureHeld)
	if err == nil && k.Stay {
		k.res.Pause = k.last.Sub(start)
		return nil
	}
	at, resumeErr := k.guest.Resume()
	ran := time.Now()
	if resumeErr == nil {
		ran = start.Add(time.Duration(at - began)) // before this thread had a CPU again
	}
	k.res.RunningAt = at
	k.lapUntil("resume", ran)
	k.res.Pause = k.last.Sub(start)
	if err != nil {
		return err
	}
	return resumeErr
}

// lap notes what the pause was spent on since the last lap.
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
	if err := k.copyPaused(); err != nil { // before any disk goes on: a full file system fails here
		return err
	}
	k.lap("copy")
	if !k.Force { // before any goes on in its new file
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

// scanAndSave finds what is left, and saves the state meanwhile, which takes less long but for the
// smallest of guests. Saving makes no page the memory's own, and none written: what KVM itself
// writes then (the steal time's mark that a vCPU does not run) it writes only to a page that it finds
// writable (kvm_steal_time_set_preempted in arch/x86/kvm/x86.c), which the scan reports in any case.
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
	k.lap("state") // what was left of it
	return err
}

// inTime refuses a capture whose pause would be too long: it has taken so long, and
// what is left is still to be copied.
func (k *captureOp) inTime(took time.Duration) error {
	if k.Max == 0 {
		return nil
	}
	left := extent.Bytes(k.left)
	buffered := min(left, k.buffer)
	// The buffer is memory, several times as fast as the file that speed was measured with.
	seconds := (float64(buffered)/2 + float64(left-buffered)) / k.speed
	if will := took + time.Duration(seconds*float64(time.Second)); will > k.Max {
		return fmt.Errorf("%w: %d bytes are left, about %s", vmm.ErrPause, left, will.Round(100*time.Microsecond))
	}
	return nil
}

// copyPaused copies what is left: to the buffer, and when that is full to the file.
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

// finish writes what the pause left in memory.
func (k *captureOp) finish() error {
	defer k.CloseOutput()
	defer k.tail.free()
	failpoint.Here(failpoint.CaptureResumed)
	held := k.tail.held()
	for _, r := range k.left {
		if len(held) == 0 { // the rest is in the file already
			break
		}
		n := min(r.Length, int64(len(held)))
		if err := k.write(held[:n], r.Offset); err != nil {
			return err
		}
		held = held[n:]
	}
	k.tail.free() // it is not needed while the rest is written
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
