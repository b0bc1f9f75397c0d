package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/unixfd"
)

// sendLimit is how long the other side may leave its socket full. It reads all
// the time, so that one that takes nothing for so long is stopped, stuck or
// hostile.
const sendLimit = 30 * time.Second

// Conn sends and receives messages with descriptors. A SEQPACKET message goes
// whole or not at all: a send that is given up leaves the connection sound. One
// goroutine receives, any number may send.
type Conn struct {
	c   *net.UnixConn
	raw syscall.RawConn
	// limit is sendLimit but in tests.
	limit time.Duration
	// writing holds a value while somebody sends; a lock that can be waited for with a context.
	writing chan struct{}
	// full is since when the other side has taken nothing; zero: it took the last message. Guarded by writing.
	full time.Time
}

var (
	// ErrLimit: a message that is refused before it is sent; the connection is sound.
	ErrLimit = errors.New("control message is over its limits")
	// ErrStuck: the other side does not read. The connection is closed.
	ErrStuck = errors.New("the other side does not read its control socket")
	// ErrMessage: what came is no message.
	ErrMessage = errors.New("bad control message")
)

// NewConn takes a connection over.
func NewConn(c *net.UnixConn) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Conn{c: c, raw: raw, limit: sendLimit, writing: make(chan struct{}, 1)}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.c.Close() }

// CloseRead ends Receive behind what is queued.
func (c *Conn) CloseRead() error { return c.c.CloseRead() }

// SetLimit changes for how long the other side may leave its socket full; tests do not wait for sendLimit.
func (c *Conn) SetLimit(d time.Duration) {
	c.writing <- struct{}{}
	c.limit = d
	<-c.writing
}

// Send sends a message, or gives up when ctx ends: then nothing of it was sent.
func (c *Conn) Send(ctx context.Context, m Message, files ...*os.File) error {
	b, oob, err := encode(m, files)
	if err != nil {
		return err
	}
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.writing }()
	defer runtime.KeepAlive(files) // oob has only their numbers
	if err = c.sendNow(b, oob); errors.Is(err, unix.EAGAIN) {
		err = c.sendSlowly(ctx, b, oob)
	} else {
		c.full = time.Time{}
	}
	return err
}

func encode(m Message, files []*os.File) (b, oob []byte, err error) {
	if b, err = json.Marshal(m); err != nil {
		return nil, nil, fmt.Errorf("encode control message: %w", err)
	}
	if len(b) > MaxMessage {
		return nil, nil, fmt.Errorf("%w: %s%s is %d bytes, want at most %d", ErrLimit, m.Op, m.Event, len(b), MaxMessage)
	}
	if len(files) > MaxFiles {
		return nil, nil, fmt.Errorf("%w: %s%s has %d descriptors, want at most %d",
			ErrLimit, m.Op, m.Event, len(files), MaxFiles)
	}
	oob, err = unixfd.Rights(files...)
	return b, oob, err
}

// sendNow does not wait. Nearly every message goes this way, without the timers of the other.
func (c *Conn) sendNow(b, oob []byte) (err error) {
	rawErr := c.raw.Write(func(fd uintptr) bool {
		for {
			if _, err = unix.SendmsgN(int(fd), b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != unix.EINTR {
				return true
			}
		}
	})
	if rawErr != nil {
		return rawErr
	}
	return err
}

// sendSlowly waits for the other side to read, until ctx ends or the limit is reached.
func (c *Conn) sendSlowly(ctx context.Context, b, oob []byte) error {
	if c.full.IsZero() {
		c.full = time.Now()
	}
	end := c.full.Add(c.limit)
	c.c.SetWriteDeadline(end)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		c.c.SetWriteDeadline(time.Unix(1, 0))
	})
	_, _, err := c.c.WriteMsgUnix(b, oob, nil)
	if !stop() {
		<-ended
	}
	c.c.SetWriteDeadline(time.Time{})
	switch {
	case err == nil:
		c.full = time.Time{}
		return nil
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case !time.Now().Before(end):
		c.c.Close()
		return fmt.Errorf("%w: it has taken nothing for %s", ErrStuck, c.limit)
	}
	return context.Cause(ctx)
}

// Receive returns the next message and at most so many descriptors, which are the
// caller's to close. With more, or none allowed and some sent, it is an error; of what is not
// allowed the kernel lets nothing into this process.
func (c *Conn) Receive(buf []byte, most int) (m Message, files []*os.File, err error) {
	var oob []byte
	if most > 0 {
		oob = make([]byte, unix.CmsgSpace(4*most))
	}
	n, oobn, flags, _, err := c.c.ReadMsgUnix(buf, oob)
	if err != nil {
		return m, nil, err
	}
	fds, ferr := unixfd.Taken(oob[:oobn]) // close-on-exec already: package net asks for that
	switch {
	case flags&unix.MSG_CTRUNC != 0:
		err = fmt.Errorf("%w: more descriptors than it may have", ErrMessage)
	case n == 0 && oobn == 0:
		err = io.EOF
	case ferr != nil:
		err = fmt.Errorf("%w: %w", ErrMessage, ferr)
	case flags&unix.MSG_TRUNC != 0:
		err = fmt.Errorf("%w: more than %d bytes", ErrMessage, len(buf))
	default:
		if err = json.Unmarshal(buf[:n], &m); err != nil {
			err = fmt.Errorf("%w: %w", ErrMessage, err)
		}
	}
	if err != nil {
		unixfd.Close(fds)
		return m, nil, err
	}
	return m, unixfd.Files(fds, "received"), nil
}
