package wire

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/unixfd"
)

// Conn is one end of the connection. One goroutine receives; any number may send.
type Conn struct {
	c    *net.UnixConn
	send sync.Mutex // one packet at a time: a full socket delays all senders alike
}

// Pair returns the sockets of both ends.
func Pair() (a, b *os.File, err error) { return unixfd.Pair(unix.SOCK_SEQPACKET, "spawner") }

// NewConn takes ownership of f, and closes it also after an error.
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

// Send sends a message with its descriptors. The caller keeps its own copies.
func (c *Conn) Send(m Message, files ...*os.File) error {
	defer runtime.KeepAlive(files)
	b, err := m.Encode()
	if err == nil && len(files) != m.carries() {
		err = fmt.Errorf("%w: kind %d with %d descriptors, want %d", ErrMessage, m.Kind, len(files), m.carries())
	}
	if err != nil {
		return err
	}
	oob, err := unixfd.Rights(files...)
	if err != nil {
		return err
	}
	c.send.Lock()
	defer c.send.Unlock()
	if _, _, err := c.c.WriteMsgUnix(b[:], oob, nil); err != nil {
		return fmt.Errorf("send to the other end: %w", err)
	}
	return nil
}

// carries returns a message's number of descriptors.
func (m Message) carries() int {
	switch m.Kind {
	case Spawn:
		return m.Files.Count()
	case Spawned:
		return 1
	}
	return 0
}

// Receive returns the next message and its descriptors, which are non-blocking. The caller closes
// them. io.EOF is the end of the connection. After an ErrMessage the caller should end it.
func (c *Conn) Receive() (Message, []*os.File, error) {
	var buf [Size + 1]byte // one byte more, to detect a longer message
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	n, oobn, flags, _, err := c.c.ReadMsgUnix(buf[:], oob)
	if err != nil {
		return Message{}, nil, err
	}
	fds, err := unixfd.Taken(oob[:oobn])
	if err != nil {
		return Message{}, nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	m, err := decodePacket(buf[:n], flags, len(fds))
	if err != nil {
		unixfd.Close(fds)
		return Message{}, nil, err
	}
	return m, unixfd.Files(fds, "received"), nil
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
