package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"time"

	"github.com/forkd/forkd/api"
)

// DialPort connects to a server in a sandbox, at this TCP port of the guest's localhost or its
// network. ctx limits the dialling only. The caller closes the connection. It has a CloseWrite if
// the connection to the daemon has one.
func (c *connection) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	// The request's context must outlive the dialling.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	var under net.Conn // for deadlines and addresses
	life = httptrace.WithClientTrace(life, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { under = i.Conn },
	})
	path := sandboxPath(id, "/ports/"+strconv.Itoa(int(port))+"/connect")
	resp, err := c.send(life, http.MethodGet, path, nil,
		http.Header{"Connection": {"Upgrade"}, "Upgrade": {api.UpgradeTCP}})
	if err != nil {
		stop()
		end(nil)
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	stream, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok || under == nil || !stop() {
		resp.Body.Close()
		end(nil)
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, &Error{Code: api.CodeUnsupported, Message: fmt.Sprintf(
			"the daemon at %s did not connect port %d: it answered %s", c.url, port, resp.Status)}
	}
	return &portConn{ReadWriteCloser: stream, under: under, end: func() { end(nil) }}, nil
}

// portConn is a connection made from an upgraded HTTP request.
type portConn struct {
	io.ReadWriteCloser
	under net.Conn
	end   func()
}

var _ net.Conn = (*portConn)(nil)

// CloseWrite closes the sending direction. The other direction stays open.
func (c *portConn) CloseWrite() error {
	half, ok := c.ReadWriteCloser.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Close implements net.Conn.
func (c *portConn) Close() error {
	err := c.ReadWriteCloser.Close()
	c.end()
	if errors.Is(err, os.ErrClosed) {
		return net.ErrClosed
	}
	return err
}

func (c *portConn) LocalAddr() net.Addr                { return c.under.LocalAddr() }
func (c *portConn) RemoteAddr() net.Addr               { return c.under.RemoteAddr() }
func (c *portConn) SetDeadline(t time.Time) error      { return c.under.SetDeadline(t) }
func (c *portConn) SetReadDeadline(t time.Time) error  { return c.under.SetReadDeadline(t) }
func (c *portConn) SetWriteDeadline(t time.Time) error { return c.under.SetWriteDeadline(t) }
