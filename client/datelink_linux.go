package client

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dateLink sets the time of a symbolic link. It ignores errors: not every file system keeps these
// times.
func dateLink(root *os.Root, name string, at time.Time) {
	if at.IsZero() {
		return
	}
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(at.UnixNano())}
	_ = unix.UtimesNanoAt(int(dir.Fd()), name, times, unix.AT_SYMLINK_NOFOLLOW)
}
