package netwire

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/unixfd"
)

// SendLimit is how long the other side may leave its socket full. Both sides read all the time, so
// a side that reads no message for this time is stuck or hostile.
const SendLimit = 30 * time.Second

// Conn is one end of a wire. One goroutine may receive, any number may send.
type Conn struct {
	c    *net.UnixConn
	send sync.Mutex // orders the deadlines of sends
}

// Pair returns both ends of a wire.
func Pair() (a, b *os.File, err error) { return unixfd.Pair(unix.SOCK_SEQPACKET, "netwire") }

// NewConn takes ownership of an end of a wire. It closes f in any case.
func NewConn(f *os.File) (*Conn, error) {
	defer f.Close()
	kind, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
	if err == nil && kind != unix.SOCK_SEQPACKET {
		err = fmt.Errorf("socket type %d, want SEQPACKET", kind)
	}
	if err != nil {
		return nil, fmt.Errorf("take wire over: %w", err)
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("take wire over: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("take wire over: %T is no unix socket", c)
	}
	return &Conn{c: u}, nil
}

// Close ends the wire and a Receive in progress.
func (c *Conn) Close() error { return c.c.Close() }

// Send sends a message without a descriptor.
func (c *Conn) Send(m Message) error {
	if m.Kind.hasFile() {
		return fmt.Errorf("%w: kind %d without its descriptor", ErrMessage, m.Kind)
	}
	return c.write(m, nil)
}

// SendOpened answers an Open with the flow's descriptor. The caller keeps f.
func (c *Conn) SendOpened(id uint32, f *os.File) error {
	defer runtime.KeepAlive(f)
	oob, err := unixfd.Rights(f)
	if err != nil {
		return err
	}
	return c.write(Message{Kind: Opened, ID: id}, oob)
}

func (c *Conn) write(m Message, oob []byte) error {
	b, err := m.Encode()
	if err != nil {
		return err
	}
	c.send.Lock()
	defer c.send.Unlock()
	c.c.SetWriteDeadline(time.Now().Add(SendLimit))
	if _, _, err = c.c.WriteMsgUnix(b[:], oob, nil); err != nil {
		return fmt.Errorf("send on wire: %w", err)
	}
	return nil
}

// Receive returns the next message. Opened and Link have a descriptor, which the caller must close.
// withFile reports whether descriptors are allowed; forkd-net accepts none. io.EOF is the end of
// the wire. After an ErrMessage, the caller should close the wire.
func (c *Conn) Receive(withFile bool) (Message, *os.File, error) {
	var buf [Size + 1]byte // one extra byte detects longer messages
	var oob []byte
	if withFile {
		oob = make([]byte, unix.CmsgSpace(4))
	}
	n, oobn, flags, _, err := c.c.ReadMsgUnix(buf[:], oob)
	if err != nil {
		return Message{}, nil, err
	}
	file, err := takeFile(oob[:oobn])
	if err != nil {
		return Message{}, nil, err
	}
	m, err := decodePacket(buf[:n], flags, file)
	if err != nil {
		if file != nil {
			file.Close()
		}
		return Message{}, nil, err
	}
	return m, file, nil
}

func decodePacket(b []byte, flags int, file *os.File) (Message, error) {
	if flags&unix.MSG_CTRUNC != 0 {
		return Message{}, fmt.Errorf("%w: descriptors that may not come", ErrMessage)
	}
	if len(b) == 0 && file == nil {
		return Message{}, io.EOF
	}
	m, err := Decode(b)
	if err != nil {
		return Message{}, err
	}
	if m.Kind.hasFile() != (file != nil) {
		return Message{}, fmt.Errorf("%w: kind %d, descriptor: %t", ErrMessage, m.Kind, file != nil)
	}
	return m, nil
}

// takeFile returns the one allowed descriptor. Control data is padded to eight bytes, so the kernel
// may pass in a second descriptor.
func takeFile(oob []byte) (*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	all, err := unixfd.Taken(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if len(all) == 1 {
		unix.SetNonblock(all[0], true) // otherwise the runtime would not poll it
		return os.NewFile(uintptr(all[0]), "flow"), nil
	}
	unixfd.Close(all)
	return nil, fmt.Errorf("%w: %d descriptors", ErrMessage, len(all))
}
