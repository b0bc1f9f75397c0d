package sandbox

import "time"

// AtEnd is what becomes of a sandbox at its deadline, or when it was idle for too long.
type AtEnd string

const (
	AtEndKill  AtEnd = "kill" // what a Life without an AtEnd has
	AtEndPause AtEnd = "pause"
)

// Life is how long a sandbox may run, and what becomes of it then.
type Life struct {
	// Deadline is an instant of the host's wall clock; zero: there is none. A paused sandbox
	// that is to be killed at it is killed, too.
	Deadline time.Time `json:",omitzero"`
	// TTL is how far ahead the deadline was when it was set. In a request a TTL without a deadline sets that
	// from now on; a resume does so again when the deadline has passed.
	TTL time.Duration `json:",omitempty"`
	// Idle is for how long it may run without being used; 0: for ever.
	Idle time.Duration `json:",omitempty"`
	// AtEnd is what becomes of it then.
	AtEnd AtEnd `json:",omitempty"`
	// AutoResume has it go on when somebody wants something of its guest while it is paused.
	AutoResume bool `json:",omitempty"`
	// FilesystemOnly has a pause at its end keep its disk alone. One for the host's want of memory keeps all.
	FilesystemOnly bool `json:",omitempty"`
	// RestartOnHang has it rolled back to its base when its guest's kernel hangs.
	RestartOnHang bool `json:",omitempty"`
	// Suspended is set while the sandbox is paused and its deadline does not count. A resume sets the deadline again, TTL
	// from then.
	Suspended bool `json:",omitempty"`
}

// Bounds of a Life. The longest is such that no clock of ours overflows.
const (
	MinLife = time.Second
	MaxLife = 3650 * 24 * time.Hour
)

// Set is a Life as it is kept: complete, or the reason why it cannot be.
func (l Life) Set(now time.Time) (Life, error) {
	if l == (Life{}) {
		return l, nil
	}
	if l.AtEnd == "" {
		l.AtEnd = AtEndKill
	}
	switch {
	case l.AtEnd != AtEndKill && l.AtEnd != AtEndPause:
		return l, Errorf(ErrInvalid, "", "at_end is %q, want kill or pause", Clip(string(l.AtEnd)))
	case l.FilesystemOnly && l.AtEnd != AtEndPause:
		return l, Errorf(ErrInvalid, "",
			"filesystem_only is for a sandbox that is paused at its end, and this one is killed then")
	case l.Idle != 0 && (l.Idle < MinLife || l.Idle > MaxLife):
		return l, Errorf(ErrInvalid, "", "the idle time is %s, want %s to %s, or 0 for none", l.Idle, MinLife, MaxLife)
	case l.TTL != 0 && (l.TTL < MinLife || l.TTL > MaxLife):
		return l, Errorf(ErrInvalid, "", "the time to live is %s, want %s to %s, or 0 for none", l.TTL, MinLife, MaxLife)
	case !l.Deadline.IsZero() && !l.Deadline.After(now), l.Deadline.Sub(now) > MaxLife:
		return l, Errorf(ErrInvalid, "", "the deadline is %s, want one within the next %s", l.Deadline, MaxLife)
	}
	// Without its reading of the monotonic clock: it is an instant, whatever becomes of this process.
	switch now = now.Round(0).UTC(); {
	case l.Deadline.IsZero() && l.TTL != 0:
		l.Deadline = now.Add(l.TTL)
	case !l.Deadline.IsZero():
		l.Deadline = l.Deadline.Round(0).UTC()
		if l.TTL == 0 {
			l.TTL = l.Deadline.Sub(now)
		}
	}
	return l, nil
}

// Change is what becomes of a life that is set anew. A deadline that stays may have passed.
func (l Life) Change(to Life, now time.Time) (Life, error) {
	if to.Deadline.IsZero() || !to.Deadline.Equal(l.Deadline) {
		return to.Set(now)
	}
	to.Deadline, to.TTL = time.Time{}, 0
	to, err := to.Set(now)
	if to.AtEnd == "" {
		to.AtEnd = AtEndKill
	}
	to.Deadline, to.TTL = l.Deadline, l.TTL
	return to, err
}

// Passed reports whether the deadline has. One that is suspended has not.
func (l Life) Passed(now time.Time) bool {
	return !l.Suspended && !l.Deadline.IsZero() && !l.Deadline.After(now.Round(0))
}

// Resumed is the Life of a sandbox that was paused: a deadline that was suspended or has passed is set again.
func (l Life) Resumed(now time.Time) Life {
	if (l.Suspended || l.Passed(now)) && !l.Deadline.IsZero() {
		l.Deadline = now.Round(0).UTC().Add(l.TTL)
	}
	l.Suspended = false
	return l
}

// InTransition reports whether a sandbox is being paused or resumed.
func (i Info) InTransition() bool { return i.Status == StatusPausing || i.Status == StatusResuming }

// Paused refuses what needs a guest of a sandbox that is paused, or about to be.
func Paused(i Info) error {
	return Detailed(Errorf(ErrConflict, ReasonSandboxPaused, "sandbox %s is %s", i.ID, i.Status), "sandbox", i.ID)
}

// PauseOptions are how a sandbox is paused.
type PauseOptions struct {
	// FilesystemOnly keeps its disk, and not its memory: it boots when it is resumed.
	FilesystemOnly bool
	// IdleFor has it paused only if nobody has used it for so long; 0: in any case.
	IdleFor time.Duration
	// Suspend suspends the deadline while it is paused: it is not killed then.
	Suspend bool
	// Why is told with the event; empty: it was asked for.
	Why string
}
