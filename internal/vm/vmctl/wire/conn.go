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

// sendLimit is how long the other side may leave its socket full. A correct peer reads all the
// time; after this time it must be stopped, stuck or hostile.
const sendLimit = 30 * time.Second

// Conn sends and receives messages with descriptors. A SEQPACKET message is sent entirely or not at
// all, so an abandoned send leaves the connection usable. One goroutine receives; any number may
// send.
type Conn struct {
	c   *net.UnixConn
	raw syscall.RawConn
	// limit is sendLimit, except in tests.
	limit time.Duration
	// writing holds a value while a goroutine sends. It is a lock with support for waiting with a
	// context.
	writing chan struct{}
	// full is the time since which the other side has taken no message; zero if it took the last
	// message. Guarded by writing.
	full time.Time
}

var (
	// ErrLimit is returned for a message refused before sending. The connection stays usable.
	ErrLimit = errors.New("control message is over its limits")
	// ErrStuck is returned if the other side does not read. The connection is closed.
	ErrStuck = errors.New("the other side does not read its control socket")
	// ErrMessage is returned for an invalid message.
	ErrMessage = errors.New("bad control message")
)

// NewConn takes ownership of a connection.
func NewConn(c *net.UnixConn) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Conn{c: c, raw: raw, limit: sendLimit, writing: make(chan struct{}, 1)}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.c.Close() }

// CloseRead ends Receive after the queued messages.
func (c *Conn) CloseRead() error { return c.c.CloseRead() }

// SetLimit changes how long the other side may leave its socket full. Tests use it to avoid
// sendLimit.
func (c *Conn) SetLimit(d time.Duration) {
	c.writing <- struct{}{}
	c.limit = d
	<-c.writing
}

// Send sends a message. If ctx ends, it gives up and has sent no part of the message.
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

// sendNow sends without waiting. Nearly every message takes this path, which needs no timers.
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

// Receive returns the next message and at most most descriptors, which the caller closes. It
// returns an error if the message has more, or has any while most is 0. The kernel installs no
// excess descriptor in this process.
func (c *Conn) Receive(buf []byte, most int) (m Message, files []*os.File, err error) {
	var oob []byte
	if most > 0 {
		oob = make([]byte, unix.CmsgSpace(4*most))
	}
	n, oobn, flags, _, err := c.c.ReadMsgUnix(buf, oob)
	if err != nil {
		return m, nil, err
	}
	fds, ferr := unixfd.Taken(oob[:oobn]) // already close-on-exec: package net requests it
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
