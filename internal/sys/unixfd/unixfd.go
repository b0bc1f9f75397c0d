//go:build linux

// Package unixfd creates pairs of unix sockets, and sends and receives descriptors in messages. Beware: the
// process owns received descriptors as soon as the message is read, so it has to close them even if the message
// is invalid.
package unixfd

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Pair creates a socket pair of type SOCK_STREAM or SOCK_SEQPACKET. The ends are non-blocking and closed by an
// exec.
func Pair(kind int, name string) (a, b *os.File, err error) {
	x, y, err := Numbers(kind | unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(x), name), os.NewFile(uintptr(y), name), nil
}

// Stream creates a pair of streams: a connection for this process, and an end to give away. The caller closes both.
func Stream(name string) (ours net.Conn, theirs *os.File, err error) {
	f, theirs, err := Pair(unix.SOCK_STREAM, name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if ours, err = net.FileConn(f); err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// Numbers creates a socket pair as bare descriptors. They block unless kind has SOCK_NONBLOCK.
func Numbers(kind int) (a, b int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, os.NewSyscallError("socketpair", err)
	}
	return fds[0], fds[1], nil
}

// Rights returns the control data to send files, or nil without files. It contains only their numbers; the caller
// keeps the files open until it is sent.
func Rights(files ...*os.File) ([]byte, error) {
	if len(files) == 0 {
		return nil, nil
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fd, err := number(f)
		if err != nil {
			return nil, err
		}
		fds[i] = fd
	}
	return unix.UnixRights(fds...), nil
}

// number returns a file's descriptor. The method Fd would make the file description blocking for all of its
// users.
func number(f *os.File) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(fd uintptr) { n = int(fd) })
	return n, err
}

// Taken returns the descriptors received with a message, from its control data. The caller closes them. On error,
// all are closed.
func Taken(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("control data: %w", err)
	}
	for i := range msgs {
		more, moreErr := rights(msgs[i])
		fds = append(fds, more...)
		if moreErr != nil {
			err = fmt.Errorf("control data: %w", moreErr)
		}
	}
	if err != nil {
		Close(fds)
		return nil, err
	}
	return fds, nil
}

// rights returns the descriptors of one message. It ignores a truncated number: the library would read past its
// end (x/sys 0.49, ParseUnixRights).
func rights(m unix.SocketControlMessage) ([]int, error) {
	whole := len(m.Data) &^ 3
	cut := len(m.Data) - whole
	m.Data = m.Data[:whole]
	fds, err := unix.ParseUnixRights(&m)
	if err == nil && cut > 0 {
		err = fmt.Errorf("%d bytes after %d descriptors", cut, len(fds))
	}
	return fds, err
}

// Close closes descriptors.
func Close(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// Files returns files for received descriptors. The runtime polls non-blocking ones.
func Files(fds []int, name string) []*os.File {
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), name))
	}
	return files
}

// CloseAll closes files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
