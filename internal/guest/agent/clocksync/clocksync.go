// Package clocksync keeps a guest's wall clock from falling behind the host's clock. The host sends
// its time with requests. The package keeps the last known offset of the wall clock.
//
// A request may be old when it is handled, so a clock that seems to be ahead is never set. If a
// program has set the clock, the package leaves it alone until the guest takes an identity.
package clocksync

import (
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// behind is the tolerated delay of the clock.
	behind = 100 * time.Millisecond
	// jitter is the tolerated change of the offset. A larger change means that a program has set
	// the clock.
	jitter = 10 * time.Millisecond
	// farthest limits the correction, in case the host's clock is wrong by years.
	farthest = 366 * 24 * time.Hour
)

// Clocks sets the guest's clock.
type Clocks interface {
	SetClock(t time.Time) error
}

// Keeper sets the clock when it is behind. It is safe for concurrent use.
type Keeper struct {
	Clocks Clocks                           // sets the machine's clock
	Log    func(format string, args ...any) // receives one line for each correction or failure
	// Read returns the wall clock and the time since boot. If nil, it reads the machine's clocks.
	Read func() (wall time.Time, boot time.Duration)

	mu     sync.Mutex // guards the fields below
	offset time.Duration
	known  bool
	theirs bool // a program has set the clock
}

// Check compares the clock with the host's time of a request, in nanoseconds since 1970 as text. It
// ignores text with another form.
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

// Taken notes that the clock now is the host's, because the guest has just booted or taken an
// identity.
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
