package hostcap

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// MinSpeed is the minimum of a usable KVM, in instructions per second. Hardware exceeds 1e9, QEMU's emulation of
// a host with KVM reaches 1.6e8 to 4e8, and a KVM that emulates guest kernels 1e6.
const MinSpeed = 100e6

// KVMFacts holds the results of probing /dev/kvm. The first error ends the probing, so later fields are only set
// if the earlier probes succeeded.
type KVMFacts struct {
	// OpenErr is set if the device could not be opened or has the wrong version.
	OpenErr error
	// Missing lists the capabilities needed by forkd and missing in this KVM.
	Missing []string
	// SpeedErr is set if the loop could not be run.
	SpeedErr error
	// Speed is in instructions per second.
	Speed float64
	// MeasuredAt is the time of the measurement, which may come from the cache.
	MeasuredAt time.Time
}

var (
	errNoDevice = errors.New("there is no /dev/kvm")
	errDenied   = errors.New("/dev/kvm may not be opened")
)

// Decide chooses the host if its KVM is usable, and the machine otherwise.
func (f KVMFacts) Decide() Decision {
	if problem := f.problem(); problem != "" {
		return Decision{Machine, problem}
	}
	return Decision{Host, fmt.Sprintf("this host's KVM runs %s instructions per second", speedText(f.Speed))}
}

// problem returns why this KVM is not usable, or "".
func (f KVMFacts) problem() string {
	switch {
	case f.OpenErr != nil:
		return f.OpenErr.Error()
	case len(f.Missing) > 0:
		return "this host's KVM lacks " + strings.Join(f.Missing, ", ")
	case f.SpeedErr != nil:
		return "this host's KVM does not run a loop: " + f.SpeedErr.Error()
	case f.Speed < MinSpeed:
		return fmt.Sprintf("this host's KVM runs %s instructions per second, %s are needed",
			speedText(f.Speed), speedText(MinSpeed))
	}
	return ""
}

// Checks returns doctor's lines about KVM.
func (f KVMFacts) Checks() []Check {
	const useMachine = "forkd uses the machine instead (`forkd machine start`)"
	device := Check{Name: "kvm device", Level: OK, Detail: "/dev/kvm opens, API version 12"}
	if f.OpenErr != nil {
		device.Level, device.Detail, device.Do = Note, f.OpenErr.Error(), openAdvice(f.OpenErr)
		return []Check{device}
	}
	caps := Check{Name: "kvm capabilities", Level: OK, Detail: fmt.Sprintf("all %d are there", len(needed))}
	if len(f.Missing) > 0 {
		caps.Level, caps.Detail, caps.Do = Note, "missing: "+strings.Join(f.Missing, ", "),
			"use a newer kernel; until then "+useMachine
	}
	speed := Check{Name: "kvm speed", Level: OK, Detail: speedText(f.Speed) + " instructions per second in ring 0"}
	switch {
	case f.SpeedErr != nil:
		speed.Level, speed.Detail, speed.Do = Note, f.SpeedErr.Error(), useMachine
	case f.Speed < MinSpeed:
		speed.Level, speed.Do = Note,
			fmt.Sprintf("%s are needed: this KVM emulates instructions in software; %s", speedText(MinSpeed), useMachine)
	}
	return []Check{device, caps, speed}
}

func openAdvice(err error) string {
	switch {
	case errors.Is(err, errDenied):
		return "add yourself to the group that owns it (usually: sudo usermod -aG kvm $USER) and log in again; until then " +
			"forkd uses the machine"
	case errors.Is(err, errNoDevice):
		return "on hardware: enable virtualisation in the firmware and load kvm-intel or kvm-amd; in a cloud VM: ask for " +
			"nested virtualisation; until then forkd uses the machine"
	}
	return "forkd uses the machine instead"
}

func speedText(perSecond float64) string {
	return fmt.Sprintf("%.4g million", perSecond/1e6)
}
