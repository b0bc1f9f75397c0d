package vmproc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/linetime"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// ConsoleTail is the number of console lines in an error.
const ConsoleTail = 12

// TailLines returns the last n lines of a log, without terminal control characters: the text comes
// from a guest and is shown to a user.
func TailLines(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 16 << 10
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	b := make([]byte, min(most, st.Size()))
	k, _ := f.ReadAt(b, st.Size()-int64(len(b)))
	lines := strings.Split(strings.TrimSpace(Printable(linetime.Plain(b[:k]))), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Printable removes terminal control characters.
func Printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && (r < 0x80 || r >= 0xa0) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(string(b), "?"))
}

// lastLines and lastBytes limit the part of a console that is logged.
const (
	lastLines = 30
	lastBytes = 4 << 10
)

// LastWords returns the end of the console, in whole lines if one of them fits.
func LastWords(console string) string {
	said := TailLines(console, lastLines)
	if len(said) <= lastBytes {
		return said
	}
	said = said[len(said)-lastBytes:]
	if _, whole, ok := strings.Cut(said, "\n"); ok {
		return whole
	}
	return strings.ToValidUTF8(said, "") // cut within a character
}

// EndError returns the end of a VM as an error.
func (m *VM) EndError() error {
	return sandbox.Errorf(sandbox.ErrGuestGone, "", "%w: %s", ErrNoVM, m.EndReason())
}

// EndReason returns a description of how a VM ended. Precondition: proc.Done is closed, or will be
// soon: a VMM closes its socket a moment before it is reaped.
func (m *VM) EndReason() string {
	m.WaitEnd(time.Second)
	exit := m.Proc.Exit()
	switch exit.Kind {
	case vmm.ExitPowerOff:
		return "the guest powered off"
	case vmm.ExitReset:
		if line := panicLine(filepath.Join(m.Dir, client.ConsoleLog)); line != "" {
			return "the guest's kernel panicked: " + guesttext.Of(line).String()
		}
		return "the guest rebooted"
	case vmm.ExitKilled:
		if why := m.endGroup(); why != "" {
			return why
		}
		if said := lastWords(m.Dir); said != "" {
			return fmt.Sprintf("%s; it said: %s", exit.Reason, guesttext.Tail(said))
		}
	}
	return exit.Reason
}

// KernelFault returns the line in which the guest's kernel reported its own fault, such as an oops,
// if that ended the VM. Otherwise it returns an empty string, also for a panic without a fault,
// such as a missing root file system. Precondition: as of EndReason.
func (m *VM) KernelFault() string {
	if !m.WaitEnd(time.Second) || m.Proc.Exit().Kind != vmm.ExitReset {
		return ""
	}
	_, fault := panicLines(filepath.Join(m.Dir, client.ConsoleLog))
	return guesttext.Of(fault).String()
}

// WaitEnd waits for the process to end. It returns false if the process has not ended within the
// limit.
func (m *VM) WaitEnd(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-m.Proc.Done():
		return true
	case <-t.C:
		return false
	}
}

// hangUpGrace is how long the end of a VM's process may be noticed after its control socket closed. A killed
// process frees the memory it has mapped in between, which takes long on a busy host. The process never
// closes the socket otherwise.
const hangUpGrace = 5 * time.Second

// EndedWith reports whether a VM has ended, given the error of a request to it. It waits a moment for the end
// of a process whose sockets are closed, as that precedes its end.
func EndedWith(m *VM, err error) bool {
	switch {
	case !m.Alive():
		return true
	case errors.Is(err, sandbox.ErrTimeout):
		return false
	case errors.Is(err, vmm.ErrGone):
		return m.WaitEnd(hangUpGrace)
	default:
		return m.WaitEnd(50 * time.Millisecond)
	}
}

// oopsLine matches the kernel's first line about a fault, after the time.
var oopsLine = regexp.MustCompile(`(?m)^(?:\[[ .0-9]+\] )?((?:BUG: |kernel BUG at |Oops: [a-z]|general protection fault).*)$`)

// panicLine returns the kernel's reason for its panic, and the fault before it if there was one:
// after a fault the reason is only "Fatal exception" or the end of init.
func panicLine(console string) string {
	reason, fault := panicLines(console)
	if fault != "" {
		reason += ", after " + fault
	}
	return reason
}

// panicLines returns the kernel's reason for its panic and the line of the fault before it. Both
// are empty without a panic.
func panicLines(console string) (reason, fault string) {
	const mark = "Kernel panic - not syncing: "
	f, err := os.Open(console)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 4<<20))
	before, line, ok := bytes.Cut(linetime.Plain(b), []byte(mark))
	if !ok {
		return "", ""
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	if oops := oopsLine.FindAllSubmatch(before, -1); len(oops) > 0 {
		fault = oneLine(oops[len(oops)-1][1])
	}
	return oneLine(line), fault
}

func oneLine(b []byte) string { return strings.TrimSpace(Printable(b[:min(len(b), 200)])) }

// ErrNoVM is returned if an operation needs a VM that has ended.
var ErrNoVM = errors.New("its VM has ended")
