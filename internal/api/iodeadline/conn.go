package iodeadline

import (
	"errors"
	"net"
	"time"
)

// Conn is a connection a handler took over.
type Conn struct {
	net.Conn
	out *Writer
}

func (c *Conn) Write(b []byte) (int, error) { return c.out.write(c.Conn.Write, b) }

// CloseWrite closes the sending direction.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// SetDeadline sets both deadlines. A deadline in the past is final.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.out.SetReadDeadline(t), c.out.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of reads. A deadline in the past is final.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.out.SetReadDeadline(t) }

// SetWriteDeadline sets the deadline of writes. A deadline in the past is final.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }
