package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/forkd/forkd/internal/seccomp"
	"github.com/forkd/forkd/internal/vmspec"
)

// Descriptors that a VMM process starts with, beside the standard three.
const (
	FDKVM     = 3 // /dev/kvm
	FDControl = 4 // listening control socket
	FDVsock   = 5 // listening vsock socket
	FDConsole = 6 // console log, read and write
	// FDFailpoints is there in crash tests only (package failpoint).
	FDFailpoints = 7
)

// Program is the first argument of a VMM process, its name in a list of processes.
const Program = "forkd-vmm"

// Arguments behind the shape.
const (
	argPrewarm = "prewarm"
	argSeccomp = "seccomp=" // and the mode
)

// Start is what a VMM process is told by its arguments.
type Start struct {
	Shape vmspec.Shape
	// Prewarm has it go through a restore with nothing in it before it is ready: that takes
	// as long as what the real one saves, so it is for those that wait.
	Prewarm bool
	// Seccomp is what its filters do; empty: seccomp.Off.
	Seccomp seccomp.Mode
}

// Args are a VMM process's arguments.
func Args(s Start) ([]string, error) {
	b, err := json.Marshal(s.Shape)
	if err != nil {
		return nil, err
	}
	args := []string{Program, string(b)}
	if s.Prewarm {
		args = append(args, argPrewarm)
	}
	if s.Seccomp != "" {
		args = append(args, argSeccomp+string(s.Seccomp))
	}
	return args, nil
}

// ParseArgs is what Args was given.
func ParseArgs(args []string) (s Start, err error) {
	if len(args) < 2 {
		return s, errByHand
	}
	if err := json.Unmarshal([]byte(args[1]), &s.Shape); err != nil {
		return s, fmt.Errorf("decode shape: %w", err)
	}
	if err := s.Shape.Validate(); err != nil {
		return s, fmt.Errorf("shape: %w", err)
	}
	s.Seccomp = seccomp.Off
	for _, arg := range args[2:] {
		mode, isMode := strings.CutPrefix(arg, argSeccomp)
		switch {
		case arg == argPrewarm:
			s.Prewarm = true
		case !isMode:
			return s, errByHand
		default:
			if s.Seccomp, err = seccomp.ParseMode(mode); err != nil {
				return s, fmt.Errorf("mode of the filters of system calls: %w", err)
			}
		}
	}
	return s, nil
}

var errByHand = errors.New("this is the process of a virtual machine; the daemon starts it, nobody does by hand")
