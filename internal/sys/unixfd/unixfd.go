//go:build linux

// Package unixfd makes pairs of unix sockets, and puts descriptors beside what is sent on one and takes
// them out of what came. The trap: what a message carried is this process's from the moment that it was
// read, so it has to be closed whatever is wrong with the message.
package unixfd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Pair makes two ends, of SOCK_STREAM or SOCK_SEQPACKET, that do not block and are closed by an exec.
func Pair(kind int, name string) (a, b *os.File, err error) {
	x, y, err := Numbers(kind | unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(x), name), os.NewFile(uintptr(y), name), nil
}

// Numbers makes two ends as bare descriptors; they block unless kind has SOCK_NONBLOCK.
func Numbers(kind int) (a, b int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, os.NewSyscallError("socketpair", err)
	}
	return fds[0], fds[1], nil
}

// Rights is the control data that carries files; none is nil. It has only their numbers: the caller
// keeps them alive until it is sent.
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

// number is a file's descriptor. Fd would make the description blocking, for all who share it.
func number(f *os.File) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(fd uintptr) { n = int(fd) })
	return n, err
}

// Taken are the descriptors that came with a message, by its control data. They are the caller's to
// close; with an error all are closed.
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

// rights are the descriptors of one message. A number that was cut off is none: the library would read
// past its end (x/sys 0.49, ParseUnixRights).
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

// Files makes files of descriptors that were taken. One that does not block is polled by the runtime.
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
