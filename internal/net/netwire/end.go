package netwire

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// End is forkd-net's end of a wire. forkd-net has thousands of them, so an End is a descriptor
// outside the runtime's poller, without a goroutine. Its owner polls it, and calls Receive when it
// is readable. Any number of goroutines may send.
type End struct {
	sending sync.Mutex // orders messages; held while the other side leaves its socket full

	mu sync.Mutex // guards fd for calls that do not wait; taken after sending
	fd int        // -1 after Close
}

// TakeEnd takes ownership of a descriptor. It closes the descriptor if it is not a wire.
func TakeEnd(fd int) (*End, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err == nil && kind != unix.SOCK_SEQPACKET {
		err = fmt.Errorf("socket type %d, want SEQPACKET", kind)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("take wire over: %w", err)
	}
	return &End{fd: fd}, nil
}

// Close ends the wire, even while a sender waits. It is idempotent.
func (e *End) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd < 0 {
		return
	}
	unix.Shutdown(e.fd, unix.SHUT_RDWR) // a waiting sender has a duplicate
	unix.Close(e.fd)
	e.fd = -1
}

// Control calls f with the descriptor, unless the wire is closed. f must not wait.
func (e *End) Control(f func(fd int) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd < 0 {
		return os.ErrClosed
	}
	return f(e.fd)
}

// Receive returns the next message, or EAGAIN if there is none. Messages to forkd-net have no
// descriptors. io.EOF is the end of the wire. After an ErrMessage, the caller should close the
// wire.
func (e *End) Receive() (Message, error) {
	var buf [Size + 1]byte // one extra byte detects longer messages
	var n, flags int
	err := e.Control(func(fd int) (err error) {
		n, _, flags, _, err = unix.Recvmsg(fd, buf[:], nil, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		return err
	})
	switch {
	case errors.Is(err, os.ErrClosed):
		return Message{}, io.EOF
	case err != nil:
		return Message{}, err
	}
	return decodePacket(buf[:n], flags, nil)
}

// Send sends a message without a descriptor. It waits for room.
func (e *End) Send(m Message) error {
	if m.Kind.hasFile() {
		return fmt.Errorf("%w: kind %d without its descriptor", ErrMessage, m.Kind)
	}
	e.sending.Lock()
	defer e.sending.Unlock()
	return e.write(m, nil, true)
}

// TrySend is Send without waiting. It returns EAGAIN if there is no room, or if another sender is
// active.
func (e *End) TrySend(m Message) error {
	if m.Kind.hasFile() {
		return fmt.Errorf("%w: kind %d without its descriptor", ErrMessage, m.Kind)
	}
	if !e.sending.TryLock() {
		return unix.EAGAIN
	}
	defer e.sending.Unlock()
	return e.write(m, nil, false)
}

// SendFD answers an Open with the flow's descriptor. The caller keeps fd.
func (e *End) SendFD(id uint32, fd int) error {
	e.sending.Lock()
	defer e.sending.Unlock()
	return e.write(Message{Kind: Opened, ID: id}, unix.UnixRights(fd), true)
}

// SendLink sends the link of a member. The caller keeps fd.
func (e *End) SendLink(fd int) error {
	e.sending.Lock()
	defer e.sending.Unlock()
	return e.write(Message{Kind: Link}, unix.UnixRights(fd), true)
}

// write sends a message. The caller holds e.sending.
func (e *End) write(m Message, oob []byte, wait bool) error {
	b, err := m.Encode()
	if err != nil {
		return err
	}
	err = e.Control(func(fd int) error { return sendNow(fd, b[:], oob) })
	if wait && errors.Is(err, unix.EAGAIN) {
		err = e.writeLater(b[:], oob)
	}
	if err != nil {
		return fmt.Errorf("send on wire: %w", err)
	}
	return nil
}

func sendNow(fd int, b, oob []byte) error {
	return unix.Sendmsg(fd, b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// writeLater waits for room. It uses a duplicate, which the runtime polls during the wait.
func (e *End) writeLater(b, oob []byte) error {
	var f *os.File
	err := e.Control(func(fd int) error {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			err = unix.SetNonblock(dup, true) // otherwise os.File would not poll it
			f = os.NewFile(uintptr(dup), "wire")
		}
		return err
	})
	if f != nil {
		defer f.Close()
	}
	if err != nil {
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	f.SetWriteDeadline(time.Now().Add(SendLimit))
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = sendNow(int(fd), b, oob)
		return !errors.Is(sent, unix.EAGAIN)
	})
	return errors.Join(err, sent)
}
