package vmm

import (
	"fmt"
	"os"
	"time"

	"github.com/forkd/forkd/internal/failpoint"
	"github.com/forkd/forkd/internal/guestmem"
	"github.com/forkd/forkd/internal/hotset"
	"github.com/forkd/forkd/internal/vmmctl"
)

// A capture takes a running machine's memory and state at one instant, the
// pause. What the guest has of its own is copied before, round after round,
// while it runs: each round write-protects the pages that were written since
// the last and copies them. What is left is copied to a buffer during the pause,
// and from there to the file when the guest runs again. Nothing that a capture
// keeps outlives it, so that the next one begins afresh and a failed one leaves
// the guest as it was.

// Bounds of the rounds.
const (
	maxRounds = 20
	// enoughLeft is what may be left for the pause if no limit is asked for, in
	// bytes: less is soon written again by any guest that works.
	enoughLeft = 512 << 10
	// copyChunk is how much is armed and copied at a time.
	copyChunk = 1 << 20
	// copyFloor is a speed that every host reaches, in bytes per second; used until one is measured.
	copyFloor = 200 << 20
)

// Capture is what Machine.Capture writes to. The files are the capture's from
// the call on.
type Capture struct {
	Memory *os.File // becomes as large as the memory; own pages are at their offsets, the rest is holes
	State  *os.File
	Index  *os.File // which pages are in Memory, as a set of package hotset
	// Disks are empty files, one per disk with an own file, in order: where it goes
	// on. The own file until now then holds what the capture has of the disk beside
	// what earlier ones have, map included. One becomes the machine's if its disk went on in it, which
	// Status.Rotations tells also if the capture failed.
	Disks []*os.File
	Live  bool // copy while the guest runs
	// MaxPause: no capture is made if the pause would be longer; 0: no limit.
	MaxPause time.Duration
}

func (c Capture) close() {
	for _, f := range []*os.File{c.Memory, c.State, c.Index} {
		f.Close()
	}
}

// capturing is one capture under way.
type capturing struct {
	Capture
	m       *Machine
	tracker *guestmem.Tracker // nil: the guest stands still for all of it
	taken   pageSet           // pages in Memory
	left    []pageRun         // written, and not copied since
	tail    pauseBuffer
	state   []byte
	rotated int     // disks that went on in their new files
	speed   float64 // of copying, bytes per second
	last    time.Time // end of the pause's last lap
	res     vmmctl.CaptureResult
}

// Capture captures a running machine, which runs on, whatever happens. When it
// returns, the instant is held; finish writes what is not in the files yet and
// closes them.
func (m *Machine) Capture(c Capture) (finish func() error, res vmmctl.CaptureResult, err error) {
	k := &capturing{Capture: c, m: m, taken: newPageSet(m.mem.Size()), speed: copyFloor}
	k.res.Mechanism = "none"
	if err := k.run(); err != nil {
		k.tail.free()
		c.close()
		for _, own := range c.Disks[min(k.rotated, len(c.Disks)):] {
			own.Close()
		}
		return nil, res, err
	}
	return k.finish, k.res, nil
}

func (k *capturing) run() error {
	if err := k.m.lockIn(vmmctl.StateRunning); err != nil {
		return err
	}
	k.m.mu.Unlock() // nothing but another control call pauses it, and they come one at a time
	if len(k.Disks) != len(k.m.cow) {
		return fmt.Errorf("%d files for %d disks with own blocks", len(k.Disks), len(k.m.cow))
	}
	if err := k.Memory.Truncate(k.m.mem.Size()); err != nil {
		return fmt.Errorf("size memory file: %w", err)
	}
	if err := k.find(k.m.mem.Own); err != nil {
		return err
	}
	failpoint.Here(failpoint.CaptureBegun)
	if k.Live {
		err := k.rounds()
		if k.tracker != nil {
			defer k.tracker.Close()
		}
		if err != nil {
			return err
		}
	}
	return k.hold()
}

// find notes what is to be copied now.
func (k *capturing) find(scan func(func(offset, length int64) error) error) error {
	k.left = k.left[:0]
	return scan(func(offset, length int64) error {
		k.left = append(k.left, pageRun{offset, length})
		return nil
	})
}

// rounds copies while the guest runs, until what is left fits the pause or does
// not become less.
func (k *capturing) rounds() error {
	tracker, err := k.m.mem.Track()
	if guestmem.Untracked(err) {
		return nil
	}
	if err != nil {
		return err
	}
	k.tracker = tracker
	k.res.Mechanism = "wp-async"
	for before := int64(1 << 62); k.res.Rounds < maxRounds; {
		left := size(k.left)
		if left <= k.enough() || left > before-before/8 && k.res.Rounds > 2 {
			return nil
		}
		before = left
		if err := k.round(); err != nil {
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

// enough is how many bytes may be left for the pause.
func (k *capturing) enough() int64 {
	if k.MaxPause == 0 {
		return enoughLeft
	}
	return max(enoughLeft, int64(k.speed*(k.MaxPause/4).Seconds()))
}

func (k *capturing) round() error {
	start := time.Now()
	for _, r := range k.left {
		for at := r.offset; at < r.offset+r.length; at += copyChunk {
			n := min(copyChunk, r.offset+r.length-at)
			// Armed before it is copied: what is written meanwhile is found by the next round.
			if err := k.tracker.Arm(at, n); err != nil {
				return err
			}
			if _, err := k.Memory.WriteAt(k.m.mem.Linear()[at:at+n], at); err != nil {
				return fmt.Errorf("write memory at %d: %w", at, err)
			}
		}
		k.taken.add(r)
	}
	if took := time.Since(start).Seconds(); took > 0 {
		k.speed = float64(size(k.left)) / took
	}
	return nil
}

// hold is the pause: the instant that the capture shows.
func (k *capturing) hold() error {
	// The guest writes on until it stands.
	if err := k.tail.reserve(2*size(k.left) + 2*enoughLeft); err != nil {
		return err
	}
	start := time.Now()
	k.last = start
	if err := k.m.Pause(); err != nil {
		return err
	}
	k.lap("stop")
	failpoint.Here(failpoint.CapturePaused)
	err := k.copyLeft(start)
	failpoint.Here(failpoint.CaptureHeld)
	at, resumeErr := k.m.Resume()
	k.lap("resume")
	k.res.RunningAt = at
	k.res.PauseNanos = k.last.Sub(start).Nanoseconds()
	if err != nil {
		return err
	}
	return resumeErr
}

// lap notes what the pause was spent on since the last lap.
func (k *capturing) lap(name string) {
	now := time.Now()
	k.res.Pause = append(k.res.Pause, vmmctl.PauseStep{Name: name, Nanos: now.Sub(k.last).Nanoseconds()})
	k.last = now
}

func (k *capturing) copyLeft(start time.Time) (err error) {
	if k.state, err = k.m.SaveState(); err != nil {
		return err
	}
	k.lap("state")
	scan := k.m.mem.Own
	if k.tracker != nil {
		scan = k.tracker.Written
	}
	if err := k.find(scan); err != nil {
		return err
	}
	k.lap("scan")
	k.res.PausedBytes = size(k.left)
	if k.MaxPause > 0 {
		// The buffer is memory, several times as fast as the file that speed was measured with.
		will := time.Since(start) + time.Duration(float64(k.res.PausedBytes)/k.speed/2*float64(time.Second))
		if will > k.MaxPause {
			return fmt.Errorf("%w: %d bytes are left, about %s", vmmctl.ErrPause, k.res.PausedBytes, will.Round(100*time.Microsecond))
		}
	}
	for _, d := range k.m.cow { // before any goes on in its new file
		if err := d.Broken(); err != nil {
			return fmt.Errorf("capture disk: %w", err)
		}
	}
	for i, d := range k.m.cow {
		if err := k.m.rotate(d, k.Disks[i]); err != nil {
			return fmt.Errorf("capture disk: %w", err)
		}
		k.rotated++
	}
	k.lap("disks")
	for _, r := range k.left {
		k.tail.add(k.m.mem.Linear()[r.offset : r.offset+r.length])
		k.taken.add(r)
	}
	k.res.Bytes = k.taken.bytes()
	k.lap("copy")
	return nil
}

// finish writes what the pause left in memory.
func (k *capturing) finish() error {
	defer k.close()
	defer k.tail.free()
	failpoint.Here(failpoint.CaptureResumed)
	at := 0
	for _, r := range k.left {
		if _, err := k.Memory.WriteAt(k.tail.bytes()[at:at+int(r.length)], r.offset); err != nil {
			return fmt.Errorf("write memory at %d: %w", r.offset, err)
		}
		at += int(r.length)
	}
	if _, err := k.State.Write(k.state); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	var w hotset.Writer
	err := k.taken.runs(func(r pageRun) error {
		return w.Add(hotset.Run{Offset: r.offset, Length: r.length, Written: true})
	})
	if err != nil {
		return err
	}
	if _, err = k.Index.Write(w.Bytes(k.m.mem.Size())); err != nil {
		return err
	}
	if err := k.m.saveMaps(); err != nil {
		return err
	}
	failpoint.Here(failpoint.CaptureWritten)
	return nil
}
