package jail

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
)

// Plan is what a process loses. It is plain data: Enter applies it.
type Plan struct {
	Want Set
	// UID is the user and the group that it gets, for part User. 0: it is in a user namespace
	// of its own already, with one user in it.
	UID uint32
	// FileSize bounds the files that it writes, in bytes.
	FileSize uint64
	// Seccomp is what becomes of a call that is taken away, for part Calls. It is not seccomp.Off:
	// the part is not wanted then.
	Seccomp seccomp.Mode
	// TimerSlack is what the process's timers may be late; 0: as much as those of who starts it.
	TimerSlack time.Duration
}

// Limits, for part Limits.
const (
	// maxFiles has room for 1024 vsock connections, and for a network's flows beside those of most guests.
	maxFiles = 2048
	// oomScore is the oom_score_adj of a VMM, so that the kernel ends a VM before the daemon. The daemon
	// keeps 0: it parses bytes of guests, so it must not be the last process that the kernel kills.
	oomScore = 500
)

// First is the lowest uid and gid of VMMs, Users how many there are: a range that neither
// distributions nor systemd give to anybody (systemd's UIDS-GIDS.md: "unused").
const (
	First uint32 = 0x7100_0000
	Users uint32 = 1 << 16
)

// IsUser tells whether a uid is of the range.
func IsUser(uid uint32) bool { return uid >= First && uid < First+Users }

// HasUsers tells whether this process may become any user of the range: it is root, and where it is so
// in a user namespace, that has them.
func HasUsers() bool {
	return os.Geteuid() == 0 && UsersMapped(os.Getpid())
}

// UsersMapped tells whether the range is there in the user namespace of a process.
func UsersMapped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", pid))
	return err == nil && covers(string(b), First, Users)
}

// covers tells whether a uid_map has all of a range.
func covers(uidMap string, first, n uint32) bool {
	var inside, outside, size uint64
	for line := range strings.Lines(uidMap) {
		if _, err := fmt.Sscan(line, &inside, &outside, &size); err != nil {
			return false
		}
		if inside <= uint64(first) && uint64(first)+uint64(n) <= inside+size {
			return true
		}
	}
	return false
}

// PickUser returns a user of the range that has no process, beginning with number n. It
// asks the kernel, so that users of VMMs which another forkd-spawn has started count, too.
func PickUser(n uint32) (uint32, error) {
	for i := range Users {
		uid := First + (n+i)%Users
		if _, err := unix.Getpriority(unix.PRIO_USER, int(uid)); errors.Is(err, unix.ESRCH) {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("all %d users for VMMs have processes", Users)
}

// Error is a part that could not be applied.
type Error struct {
	Part Part // Parts: the program could not be executed
	Err  syscall.Errno
}

func (e *Error) Error() string { return fmt.Sprintf("jail: %s: %s", e.Part, e.Err.Error()) }

func (e *Error) Unwrap() error { return e.Err }

// failure makes an Error of whatever a step returned; nil stays nil.
func failure(p Part, err error) *Error {
	if err == nil {
		return nil
	}
	errno := unix.EIO
	errors.As(err, &errno)
	return &Error{Part: p, Err: errno}
}
