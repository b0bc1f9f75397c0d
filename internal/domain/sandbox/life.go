package sandbox

import "time"

// AtEnd is the action taken when a sandbox reaches its deadline or idle limit.
type AtEnd string

const (
	AtEndKill  AtEnd = "kill" // the default
	AtEndPause AtEnd = "pause"
)

// Life holds a sandbox's deadline, its idle limit and the action taken when either passes.
type Life struct {
	// Deadline is an instant of the host's wall clock, or zero. At the deadline a paused sandbox is
	// killed, too, if AtEnd is AtEndKill.
	Deadline time.Time `json:",omitzero"`
	// TTL is the time to the deadline when it was set. In a request, a TTL without a deadline sets the deadline
	// from now. A resume does so again if the deadline has passed.
	TTL time.Duration `json:",omitempty"`
	// Idle limits how long it may run unused; 0 sets no limit.
	Idle time.Duration `json:",omitempty"`
	// AtEnd is the action at the deadline or idle limit.
	AtEnd AtEnd `json:",omitempty"`
	// AutoResume resumes the paused sandbox when its guest is needed.
	AutoResume bool `json:",omitempty"`
	// FilesystemOnly makes a pause at its end keep only the disk. A pause under memory pressure keeps memory and
	// disk.
	FilesystemOnly bool `json:",omitempty"`
	// RestartOnHang rolls it back to its base when its guest's kernel hangs.
	RestartOnHang bool `json:",omitempty"`
	// Suspended is set while the sandbox is paused and its deadline does not count. A resume sets the deadline to
	// TTL from then.
	Suspended bool `json:",omitempty"`
}

// Bounds of a Life. The longest one does not overflow our clocks.
const (
	MinLife = time.Second
	MaxLife = 3650 * 24 * time.Hour
)

// Set returns the Life with defaults and deadline filled in, or an error if it is invalid.
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
			"filesystem_only is set, but at_end is kill: want pause")
	case l.Idle != 0 && (l.Idle < MinLife || l.Idle > MaxLife):
		return l, Errorf(ErrInvalid, "", "the idle time is %s, want %s to %s, or 0 for none", l.Idle, MinLife, MaxLife)
	case l.TTL != 0 && (l.TTL < MinLife || l.TTL > MaxLife):
		return l, Errorf(ErrInvalid, "", "the time to live is %s, want %s to %s, or 0 for none", l.TTL, MinLife, MaxLife)
	case !l.Deadline.IsZero() && !l.Deadline.After(now), l.Deadline.Sub(now) > MaxLife:
		return l, Errorf(ErrInvalid, "", "the deadline is %s, want one within the next %s", l.Deadline, MaxLife)
	}
	// Round(0) strips the monotonic clock reading: the deadline is a wall-clock instant and outlives this
	// process.
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

// Change returns the Life after an update. An unchanged deadline may have passed.
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

// Passed reports whether the deadline has passed. A suspended deadline has not.
func (l Life) Passed(now time.Time) bool {
	return !l.Suspended && !l.Deadline.IsZero() && !l.Deadline.After(now.Round(0))
}

// Resumed returns the Life of a paused sandbox once it is resumed. It sets a suspended or passed deadline again.
func (l Life) Resumed(now time.Time) Life {
	if (l.Suspended || l.Passed(now)) && !l.Deadline.IsZero() {
		l.Deadline = now.Round(0).UTC().Add(l.TTL)
	}
	l.Suspended = false
	return l
}

// InTransition reports whether a sandbox is being paused or resumed.
func (i Info) InTransition() bool { return i.Status == StatusPausing || i.Status == StatusResuming }

// Paused returns the error for operations that need the guest of a paused sandbox, or of one in transition.
func Paused(i Info) error {
	return Detailed(Errorf(ErrConflict, ReasonSandboxPaused, "sandbox %s is %s", i.ID, i.Status), "sandbox", i.ID)
}

// PauseOptions configures a pause.
type PauseOptions struct {
	// FilesystemOnly keeps the disk, but not the memory. The sandbox boots when it is resumed.
	FilesystemOnly bool
	// IdleFor pauses only if the sandbox was unused for this long; 0 pauses in any case.
	IdleFor time.Duration
	// Suspend suspends the deadline during the pause, so that the sandbox is not killed then.
	Suspend bool
	// Why is reported with the event; empty if a client asked for the pause.
	Why string
}
