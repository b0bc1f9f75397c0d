// Package clocksync keeps a guest's wall clock from staying behind the host's, which sends its time with requests.
// It owns the offset of the wall clock that it last saw. The trap: a request may be old when it is looked at, so a
// clock that seems ahead is never set; and a clock that a program has set is the program's, until the guest
// takes an identity.
package clocksync

import (
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// behind is how far the clock may be behind.
	behind = 100 * time.Millisecond
	// jitter is how much the offset may change unless somebody has set the clock.
	jitter = 10 * time.Millisecond
	// farthest bounds what a header may ask for: a host whose clock is wrong by years is not followed.
	farthest = 366 * 24 * time.Hour
)

// Clocks are the guest's.
type Clocks interface {
	SetClock(t time.Time) error
}

// Keeper sets the clock. It is safe for concurrent use.
type Keeper struct {
	Clocks Clocks
	Log    func(format string, args ...any)
	// Read returns the wall clock, and the time since the boot; nil: the machine's.
	Read func() (wall time.Time, boot time.Duration)

	mu     sync.Mutex // guards what follows
	offset time.Duration
	known  bool
	theirs bool // a program has set the clock
}

// Check takes the host's time of a request, in nanoseconds since 1970 as text. It ignores what is no time.
func (k *Keeper) Check(header string) {
	ns, err := strconv.ParseInt(header, 10, 64)
	if err != nil {
		return
	}
	host := time.Unix(0, ns)
	k.mu.Lock()
	defer k.mu.Unlock()
	wall, boot := k.read()
	offset := time.Duration(wall.UnixNano()) - boot
	if changed := (offset - k.offset).Abs() > jitter; k.known && changed {
		k.theirs = true
	}
	k.known, k.offset = true, offset
	late := host.Sub(wall)
	if k.theirs || late <= behind || late > farthest {
		return
	}
	if err := k.Clocks.SetClock(host); err != nil {
		k.Log("set the clock, which is %s behind: %v", late, err)
		return
	}
	k.Log("the clock was %s behind the host's, and is set", late)
	k.offset = offset + late
}

// Taken notes that the clock is the host's: the guest has just booted, or taken an identity.
func (k *Keeper) Taken() {
	k.mu.Lock()
	defer k.mu.Unlock()
	wall, boot := k.read()
	k.known, k.theirs, k.offset = true, false, time.Duration(wall.UnixNano())-boot
}

func (k *Keeper) read() (time.Time, time.Duration) {
	if k.Read != nil {
		return k.Read()
	}
	var boot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) // never fails
	return time.Now().Round(0), time.Duration(boot.Nano())
}
