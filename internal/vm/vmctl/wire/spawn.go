package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// Descriptors that a VMM process starts with, beside the standard three.
const (
	FDKVM     = 3 // /dev/kvm
	FDControl = 4 // listening control socket
	FDVsock   = 5 // listening vsock socket
	FDConsole = 6 // console log, read and write
	// FDFailpoints is there in crash tests only (package failpoint).
	FDFailpoints = 7
	// FDProc is there in a jail, which has no /proc: the process's own directory of it, to open
	// files of once. It is closed before there is a guest.
	FDProc = 8
	// FDUserfaultfd is /dev/userfaultfd, in a jail on a host that has one.
	FDUserfaultfd = 9
)

// Program is the first argument of a VMM process, its name in a list of processes.
const Program = "forkd-vmm"

// argSeccomp is followed by the mode.
const argSeccomp = "seccomp="

// Start is what a VMM process is told by its arguments.
type Start struct {
	Shape vmspec.Shape
	// Prewarm has it go through a restore with nothing in it before it is ready: that takes
	// as long as what the real one saves, so it is for those that wait.
	Prewarm     bool
	Proc        bool // FDProc is there
	Userfaultfd bool // FDUserfaultfd is there
	// Seccomp is what its filters do; empty: seccomp.Off.
	Seccomp seccomp.Mode
}

// words are the arguments behind the shape.
func (s *Start) words() []struct {
	word string
	is   *bool
} {
	return []struct {
		word string
		is   *bool
	}{{"prewarm", &s.Prewarm}, {"proc", &s.Proc}, {"userfaultfd", &s.Userfaultfd}}
}

// Args are a VMM process's arguments.
func (s Start) Args() ([]string, error) {
	b, err := json.Marshal(s.Shape)
	if err != nil {
		return nil, err
	}
	args := []string{Program, string(b)}
	for _, w := range s.words() {
		if *w.is {
			args = append(args, w.word)
		}
	}
	if s.Seccomp != "" {
		args = append(args, argSeccomp+string(s.Seccomp))
	}
	return args, nil
}

// ParseArgs is what Args was made of.
func ParseArgs(args []string) (s Start, err error) {
	if len(args) < 2 {
		return s, errByHand
	}
	rest := args[2:]
	for _, w := range s.words() {
		if len(rest) > 0 && rest[0] == w.word {
			*w.is, rest = true, rest[1:]
		}
	}
	s.Seccomp = seccomp.Off
	if len(rest) == 1 && strings.HasPrefix(rest[0], argSeccomp) {
		if s.Seccomp, err = seccomp.ParseMode(strings.TrimPrefix(rest[0], argSeccomp)); err != nil {
			return s, fmt.Errorf("mode of the filters of system calls: %w", err)
		}
		rest = nil
	}
	if len(rest) > 0 {
		return s, errByHand
	}
	if err := json.Unmarshal([]byte(args[1]), &s.Shape); err != nil {
		return s, fmt.Errorf("decode shape: %w", err)
	}
	if err := s.Shape.Validate(); err != nil {
		return s, fmt.Errorf("shape: %w", err)
	}
	return s, nil
}

var errByHand = errors.New("this is the process of a virtual machine; the daemon starts it, nobody does by hand")

// Processors are how many the Go runtime of a VMM has for Go code, once the VM exists. A vCPU in the guest
// keeps one for up to two times MonitorSlack; one is always left to the devices.
func Processors(s vmspec.Shape) int { return s.VCPUs + 1 }

// Environment is what tunes a VMM's Go runtime as it starts.
//   - It begins with one processor: each has a page of its own for each size of what it allocates, and
//     wakes a thread that finds nothing to do. The main function asks for Processors later.
//   - disablethp: huge pages would make each VMM's few KiB of heap take 4 MiB.
//   - memprofilerate: the linker leaves out what would read the profile, but one sample is taken all the same.
//   - TZ: no file is read for the hour of gVisor's warnings. A jail has none either.
func Environment() []string {
	return []string{"GOMAXPROCS=1", "GOTRACEBACK=single", "TZ=",
		"GODEBUG=asyncpreemptoff=1,disablethp=1,memprofilerate=0"}
}

// How late timers of a VMM's threads may be. Guests' timers are the kernel's and have none of it.
const (
	// TimerSlack is that of threads that run Go code: the runtime's sleep of 3 µs before a thread takes over
	// what another one has just made ready has it. With 10 ms, two of three pauses of a capture were longer
	// by that.
	TimerSlack = time.Millisecond
	// MonitorSlack is that of the Go runtime's monitor: a thread that, whenever a process begins to do
	// something, looks at it every 20 µs for a while. In a restore that was half of the CPU time (with KVM
	// emulated), and with a slack of 1 ms still 25 of 180 ms until a child is ready. It is what a VMM is
	// started with; its main function gives its other threads TimerSlack.
	MonitorSlack = 5 * time.Millisecond
)
