package wire

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Conn is one end. One goroutine receives, any number may send.
type Conn struct {
	c    *net.UnixConn
	send sync.Mutex // a packet at a time, so that a full socket delays all alike
}

// Pair makes both ends' sockets.
func Pair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "spawner"), os.NewFile(uintptr(fds[1]), "spawner"), nil
}

// NewConn takes an end over: f is closed, whatever comes of it.
func NewConn(f *os.File) (*Conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("take socket over: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("take socket over: %T is no unix socket", c)
	}
	return &Conn{c: u}, nil
}

// Close ends the connection, and Receive with it.
func (c *Conn) Close() error { return c.c.Close() }

// Send sends a message with its descriptors, of which the caller keeps its own.
func (c *Conn) Send(m Message, files ...*os.File) error {
	defer runtime.KeepAlive(files)
	b, err := m.Encode()
	if err == nil && len(files) != m.carries() {
		err = fmt.Errorf("%w: kind %d with %d descriptors, want %d", ErrMessage, m.Kind, len(files), m.carries())
	}
	if err != nil {
		return err
	}
	fds := make([]int, 0, len(files))
	for _, f := range files {
		fd, err := number(f)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	c.send.Lock()
	defer c.send.Unlock()
	if _, _, err := c.c.WriteMsgUnix(b[:], oob, nil); err != nil {
		return fmt.Errorf("send to the other end: %w", err)
	}
	return nil
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

// carries is how many descriptors come with a message.
func (m Message) carries() int {
	switch m.Kind {
	case Spawn:
		return m.Files.Count()
	case Spawned:
		return 1
	}
	return 0
}

// Receive returns the next message and its descriptors, which do not block and are the
// caller's to close. io.EOF is the end of the connection, and an ErrMessage should be.
func (c *Conn) Receive() (Message, []*os.File, error) {
	var buf [Size + 1]byte // a longer message is seen to be longer
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	n, oobn, flags, _, err := c.c.ReadMsgUnix(buf[:], oob)
	if err != nil {
		return Message{}, nil, err
	}
	files, err := takeFiles(oob[:oobn])
	if err != nil {
		return Message{}, nil, err
	}
	m, err := decodePacket(buf[:n], flags, len(files))
	if err != nil {
		CloseAll(files)
		return Message{}, nil, err
	}
	return m, files, nil
}

func decodePacket(b []byte, flags, files int) (Message, error) {
	if flags&unix.MSG_CTRUNC != 0 {
		return Message{}, fmt.Errorf("%w: more descriptors than there may be", ErrMessage)
	}
	if len(b) == 0 && files == 0 {
		return Message{}, io.EOF
	}
	m, err := Decode(b)
	if err == nil && files != m.carries() {
		err = fmt.Errorf("%w: kind %d with %d descriptors, want %d", ErrMessage, m.Kind, files, m.carries())
	}
	return m, err
}

func takeFiles(oob []byte) (files []*os.File, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control data: %w", ErrMessage, err)
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			CloseAll(files)
			return nil, fmt.Errorf("%w: control data: %w", ErrMessage, err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// CloseAll closes files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
