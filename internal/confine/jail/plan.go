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

// Plan lists the restrictions for a process. It is plain data; Enter applies it.
type Plan struct {
	Want Set
	// UID is the process's user and group, for part User. If 0, the process already has its own user namespace
	// with one user.
	UID uint32
	// FileSize limits the files that it writes, in bytes.
	FileSize uint64
	// Seccomp is the action on a denied call, for part Calls. It must not be seccomp.Off; leave out the part
	// instead.
	Seccomp seccomp.Mode
	// TimerSlack is the process's timer slack. If 0, it inherits the slack of its parent.
	TimerSlack time.Duration
}

// Values for part Limits.
const (
	// maxFiles leaves room for 1024 vsock connections, and for network flows besides the ones of most guests.
	maxFiles = 2048
	// oomScore is the oom_score_adj of a VMM, so that the kernel kills a VM before the daemon. The daemon keeps
	// 0: it parses data from guests, so it must not be the last process that the kernel kills.
	oomScore = 500
)

// First is the lowest uid and gid of VMMs, and Users is their number. Neither distributions nor systemd use this
// range (systemd's UIDS-GIDS.md: "unused").
const (
	First uint32 = 0x7100_0000
	Users uint32 = 1 << 16
)

// IsUser reports whether a uid is in the range.
func IsUser(uid uint32) bool { return uid >= First && uid < First+Users }

// HasUsers reports whether this process may become any user of the range: it must be root, and if it is in a user
// namespace, the namespace must map the range.
func HasUsers() bool {
	return os.Geteuid() == 0 && UsersMapped(os.Getpid())
}

// UsersMapped reports whether the user namespace of a process maps the range.
func UsersMapped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", pid))
	return err == nil && covers(string(b), First, Users)
}

// covers reports whether a uid_map maps all of a range.
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

// PickUser returns a user of the range without processes, beginning with number n. It asks the kernel, so it also
// sees VMMs started by another forkd-spawn.
func PickUser(n uint32) (uint32, error) {
	for i := range Users {
		uid := First + (n+i)%Users
		if _, err := unix.Getpriority(unix.PRIO_USER, int(uid)); errors.Is(err, unix.ESRCH) {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("all %d users for VMMs have processes", Users)
}

// Error reports a part that could not be applied.
type Error struct {
	Part Part // Parts if the program could not be executed
	Err  syscall.Errno
}

func (e *Error) Error() string { return fmt.Sprintf("jail: %s: %s", e.Part, e.Err.Error()) }

func (e *Error) Unwrap() error { return e.Err }

// failure converts a step's error to an Error. It returns nil for nil.
func failure(p Part, err error) *Error {
	if err == nil {
		return nil
	}
	errno := unix.EIO
	errors.As(err, &errno)
	return &Error{Part: p, Err: errno}
}
