package iodeadline

import (
	"errors"
	"net"
	"time"
)

// Conn is a connection that a handler took over.
type Conn struct {
	net.Conn
	out *Writer
}

func (c *Conn) Write(b []byte) (int, error) { return c.out.write(c.Conn.Write, b) }

// CloseWrite ends one direction.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// SetDeadline sets both. One of the past is the last.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.out.SetReadDeadline(t), c.out.SetWriteDeadline(t))
}

// SetReadDeadline sets one of reads. One of the past is the last.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.out.SetReadDeadline(t) }

// SetWriteDeadline sets one of writes. One of the past is the last.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }
