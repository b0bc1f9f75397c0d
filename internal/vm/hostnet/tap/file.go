package tap

import (
	"os"

	"golang.org/x/sys/unix"
)

// Is reports whether a descriptor is a tap.
func Is(f *os.File) bool {
	is := false
	withFD(f, func(fd int) {
		req, err := unix.NewIfreq("x")
		is = err == nil && unix.IoctlIfreq(fd, unix.TUNGETIFF, req) == nil && req.Uint16()&unix.IFF_TAP != 0
	})
	return is
}

// pollable returns a file whose reads wait in the runtime's poller. It has another descriptor of
// the same open file.
func pollable(f *os.File) (_ *os.File, err error) {
	fd := -1
	err = withFD(f, func(of int) {
		if fd, err = unix.FcntlInt(uintptr(of), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// withFD calls f with a file's descriptor, and leaves its flags unchanged.
func withFD(f *os.File, do func(fd int)) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return c.Control(func(fd uintptr) { do(int(fd)) })
}
