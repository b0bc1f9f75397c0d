package vsock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// firstPort and lastPort limit the host ports of connections to the guest.
	firstPort = 1 << 30
	lastPort  = 1<<31 - 1

	// lineTimeout is the time limit for a client's CONNECT line. answerTimeout is the time limit
	// for the guest's answer; it is long to suit a guest sharing its CPU with a hundred others.
	lineTimeout   = 5 * time.Second
	answerTimeout = 30 * time.Second
	// maxLine is enough for "CONNECT 4294967295\r\n".
	maxLine    = 32
	maxShaking = 128
)

var (
	// ErrNotReady is returned while no guest driver runs the device.
	ErrNotReady = errors.New("guest has no running socket driver")
	errTooMany  = errors.New("too many connections")
	errBadLine  = errors.New("client did not say CONNECT and a port")
)

// Serve accepts clients for the guest, until ctx ends; then it closes l and returns nil. A client
// writes "CONNECT <port>\n" and receives "OK <host port>\n" once the guest has accepted; otherwise
// its connection is closed. Open connections outlive Serve.
func (d *Device) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		sock, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = sock.Close()
			}
			return nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM),
			errors.Is(err, unix.ECONNABORTED):
			time.Sleep(10 * time.Millisecond) // clients wait in the backlog
		case err != nil:
			return fmt.Errorf("accept vsock client: %w", err)
		default:
			wg.Go(func() { d.serveClient(ctx, sock) })
		}
	}
}

// serveClient does the handshake with one client and attaches its socket to a connection.
func (d *Device) serveClient(ctx context.Context, client net.Conn) {
	sock, ok := client.(Conn)
	if !ok || !d.handshake(ctx, sock) {
		_ = client.Close()
	}
}

func (d *Device) handshake(ctx context.Context, sock Conn) bool {
	defer d.shaking.Add(-1)
	if d.shaking.Add(1) > maxShaking || !d.ready() {
		return false
	}
	port, err := readConnect(ctx, sock)
	if err != nil {
		return false
	}
	return d.connect(ctx, sock, port, true) == nil
}

func (d *Device) ready() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.readyLocked() == nil
}

func (d *Device) readyLocked() error {
	if d.rx == nil || d.closed || d.rx.Broken() {
		return ErrNotReady
	}
	return nil
}

// Connect joins sock to a new connection to the guest's port. It returns when the guest has
// answered. The device then owns sock. On error the caller keeps it.
func (d *Device) Connect(ctx context.Context, sock Conn, port uint32) error {
	return d.connect(ctx, sock, port, false)
}

func (d *Device) connect(ctx context.Context, sock Conn, port uint32, greet bool) error {
	c, err := d.open(sock, port, greet)
	if err != nil {
		return err
	}
	timer := time.NewTimer(answerTimeout)
	defer timer.Stop()
	select {
	case <-c.answered:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = fmt.Errorf("guest port %d: no answer in %v", port, answerTimeout)
	}
	return c.settle(err)
}

// open adds a connection to the table and sends the guest a request.
func (d *Device) open(sock Conn, port uint32, greet bool) (*conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.readyLocked(); err != nil {
		return nil, err
	}
	if d.live >= MaxConns {
		return nil, errTooMany
	}
	var probe conn
	if err := probe.attach(sock); err != nil {
		return nil, fmt.Errorf("use host socket: %w", err)
	}
	c := d.newConn(key{guest: port, host: d.freePort(port)}, phaseRequested)
	c.sock, c.raw, c.fd, c.greet = probe.sock, probe.raw, probe.fd, greet
	c.answered = make(chan struct{})
	if d.reset.phase == resetDone {
		d.say(c, needRequest)
		d.flushControl()
	}
	return c, nil
}

// freePort returns a host port without a connection to the guest's port. There are more ports than
// connections.
func (d *Device) freePort(guest uint32) uint32 {
	for {
		p := d.nextPort
		if d.nextPort++; d.nextPort > lastPort {
			d.nextPort = firstPort
		}
		if _, used := d.conns[key{guest: guest, host: p}]; !used {
			return p
		}
	}
}

// settle starts to serve an opened connection, or returns its socket to the caller.
func (c *conn) settle(err error) error {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.phase == phaseOpen { // even if it died since: the device owns its socket
		go c.run()
		return nil
	}
	if err == nil {
		err = errRefused
	}
	d.kill(c, c.need&needRequest == 0 && d.reset.phase == resetDone)
	d.flushControl()
	d.live--
	d.wg.Done()
	return err
}

// readConnect reads only the client's line: the bytes after it belong to the guest.
func readConnect(ctx context.Context, sock Conn) (port uint32, err error) {
	if err := sock.SetReadDeadline(time.Now().Add(lineTimeout)); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = sock.SetReadDeadline(time.Unix(1, 0)) })
	line, err := readLine(sock)
	if !stop() || err != nil {
		return 0, errors.Join(err, context.Cause(ctx))
	}
	if err := sock.SetReadDeadline(time.Time{}); err != nil {
		return 0, err
	}
	return parseConnect(line)
}

func parseConnect(line string) (uint32, error) {
	arg, ok := strings.CutPrefix(strings.TrimSuffix(line, "\r"), "CONNECT ")
	if !ok {
		return 0, errBadLine
	}
	port, err := strconv.ParseUint(arg, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errBadLine, err)
	}
	return uint32(port), nil
}

// readLine peeks first, to take only bytes up to the newline.
func readLine(sock Conn) (string, error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return "", err
	}
	var line []byte
	for len(line) < maxLine {
		var p [maxLine]byte
		n := 0
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			n, _, rerr = unix.Recvfrom(int(fd), p[:maxLine-len(line)], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			return rerr != unix.EAGAIN && rerr != unix.EINTR
		})
		if err := errors.Join(err, rerr); err != nil {
			return "", err
		}
		if n == 0 {
			return "", errBadLine
		}
		end := bytes.IndexByte(p[:n], '\n')
		if end >= 0 {
			n = end + 1
		}
		if _, err := sock.Read(p[:n]); err != nil { // available, since it was peeked
			return "", err
		}
		if line = append(line, p[:n]...); end >= 0 {
			return string(line[:len(line)-1]), nil
		}
	}
	return "", errBadLine
}
