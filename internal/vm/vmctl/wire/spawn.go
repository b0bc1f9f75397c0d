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

// Descriptors of a new VMM process, besides the standard three.
const (
	FDKVM     = 3 // /dev/kvm
	FDControl = 4 // listening control socket
	FDVsock   = 5 // listening vsock socket
	FDConsole = 6 // console log, read and write
	// FDFailpoints exists only in crash tests (package failpoint).
	FDFailpoints = 7
	// FDProc exists in a jail, which has no /proc: the process's own directory of it. The process
	// opens files from it once, and closes it before there is a guest.
	FDProc = 8
	// FDUserfaultfd is /dev/userfaultfd, in a jail on a host that has one.
	FDUserfaultfd = 9
)

// Program is the first argument of a VMM process, its name in process lists.
const Program = "forkd-vmm"

// argSeccomp is followed by the mode.
const argSeccomp = "seccomp="

// Start holds the arguments of a VMM process.
type Start struct {
	Shape vmspec.Shape // JSON in the arguments
	// Prewarm makes it run an empty restore before it is ready. It takes as long as it saves in the
	// real restore, so it suits processes that wait for their use.
	Prewarm     bool
	Proc        bool // FDProc is present
	Userfaultfd bool // FDUserfaultfd is present
	// Seccomp is the mode of its filters; empty for seccomp.Off.
	Seccomp seccomp.Mode
}

// words returns the optional arguments after the shape.
func (s *Start) words() []struct {
	word string
	is   *bool
} {
	return []struct {
		word string
		is   *bool
	}{{"prewarm", &s.Prewarm}, {"proc", &s.Proc}, {"userfaultfd", &s.Userfaultfd}}
}

// Args returns the arguments of a VMM process.
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

// ParseArgs is the inverse of Args.
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

var errByHand = errors.New("this is the process of a virtual machine; only the daemon starts it")

// Processors returns the number of processors of a VMM's Go runtime for Go code, once the VM
// exists. A vCPU in the guest keeps one for up to two times MonitorSlack. One is always left to the
// devices.
func Processors(s vmspec.Shape) int { return s.VCPUs + 1 }

// Environment returns the environment variables for tuning a VMM's Go runtime at its start.
//   - GOMAXPROCS: the runtime begins with one processor. Each processor has its own page for each
//     allocation size, and wakes a thread that finds no work. The main function requests Processors
//     later.
//   - disablethp: huge pages would make each VMM's few KiB of heap take 4 MiB.
//   - memprofilerate: the linker omits the profile's readers, but one sample is taken all the same.
//   - TZ: empty, so that no file is read for the timestamps of gVisor's warnings. A jail has none either.
func Environment() []string {
	return []string{"GOMAXPROCS=1", "GOTRACEBACK=single", "TZ=",
		"GODEBUG=asyncpreemptoff=1,disablethp=1,memprofilerate=0"}
}

// Timer slack of a VMM's threads. Guests' timers are the kernel's and unaffected.
const (
	// TimerSlack applies to threads with Go code. The runtime sleeps 3 µs before a thread takes
	// over work just made ready by another, and the slack extends that sleep. A slack of 10 ms
	// delayed two of three pauses of a capture by that much.
	TimerSlack = time.Millisecond
	// MonitorSlack applies to the Go runtime's monitor, a thread that polls the process every 20 µs
	// for a while after it begins to work. In a restore it took half of the CPU time (with KVM
	// emulated), and with a slack of 1 ms still 25 of 180 ms until a child is ready. A VMM starts
	// with this slack; its main function gives its other threads TimerSlack.
	MonitorSlack = 5 * time.Millisecond
)
