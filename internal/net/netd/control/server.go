package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/sys/unixfd"
)

// maxConns limits the concurrent connections: a daemon, its predecessor, and followers of the
// audit.
const maxConns = 128

// acceptPause is the wait after accept has failed because the process is out of descriptors.
const acceptPause = 200 * time.Millisecond

// Handler carries out the daemon's requests. Its methods are called concurrently, except for the
// requests of one connection.
type Handler interface {
	// Bind takes ownership of wire, forkd-net's end, even if it fails.
	Bind(b Binding, wire int) (Bound, error)
	Update(vm string, spec netpolicy.Spec) (Bound, error)
	Release(vm string) error
	List() []Listed
	Traffic() []Traffic
	Flows(vm string) ([]Flow, error)
	Refusals(vm string) ([]Line, error)
	// Untold returns the refusals of all VMs since its previous call by any caller.
	Untold() Untold
	Facts(vm string) (json.RawMessage, error)
	Stats() Stats
	// Subscribe calls send with each audit line of vm, or of all VMs if vm is "", until cancel is
	// called. It drops lines if its queue is full.
	Subscribe(vm string, send func(Line) error) (cancel func(), err error)
	// Shutdown starts the end of the process and returns before it.
	Shutdown()
}

// Server is forkd-net's end.
type Server struct {
	listener *net.UnixListener
	handler  Handler
	// warn is called with the reason when the server ends a connection.
	warn func(error)

	mu    sync.Mutex
	conns map[*conn]struct{}
	wait  sync.WaitGroup
}

// NewServer returns a server for handler on a listener of SEQPACKET sockets. It owns the listener.
func NewServer(l *net.UnixListener, handler Handler, warn func(error)) *Server {
	return &Server{listener: l, handler: handler, warn: warn, conns: map[*conn]struct{}{}}
}

// Listen creates the socket at path, accessible only to its owner. It replaces a socket without a
// listener.
func Listen(path string) (*net.UnixListener, error) {
	addr := &net.UnixAddr{Name: path, Net: "unixpacket"}
	if c, err := net.DialUnix("unixpacket", nil, addr); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen at %s: another forkd-net does", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", addr)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Serve serves connections until ctx ends, and returns when all have ended.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.listener.Close() })
	defer stop()
	defer s.wait.Wait()
	defer s.closeAll()
	for {
		u, err := s.listener.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				u.Close()
			}
			return nil
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
			s.warn(fmt.Errorf("accept control connection: %w", err))
			select { // when flows end, descriptors become free
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("accept control connection: %w", err)
		}
		s.accept(u)
	}
}

func (s *Server) accept(u *net.UnixConn) {
	if err := checkPeer(u); err != nil {
		s.warn(err)
		u.Close()
		return
	}
	c := &conn{c: u}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= maxConns {
		s.warn(fmt.Errorf("%w: %d control connections", ErrLimit, maxConns))
		u.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.wait.Go(func() { s.serve(c) })
}

// Conns returns the number of connections.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.close()
	}
}

// serve answers the requests of one connection in order.
func (s *Server) serve(c *conn) {
	p := &peer{conn: c, handler: s.handler}
	defer func() {
		p.end()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	}()
	for {
		e, fds, err := c.read(MaxBatch)
		if err != nil {
			if errors.Is(err, errMessage) {
				s.warn(fmt.Errorf("control connection is ended: %w", err))
			}
			return
		}
		if !p.answer(e, fds) {
			return
		}
	}
}

// peer is one connection on the server's side.
type peer struct {
	conn    *conn
	handler Handler
	greeted bool
	cancel  []func() // of subscriptions
}

func (p *peer) end() {
	p.conn.close()
	for _, cancel := range p.cancel {
		cancel()
	}
}

// answer answers one request, and reports whether the connection continues.
func (p *peer) answer(e envelope, fds []int) bool {
	body, err := p.handle(e, fds)
	werr := p.conn.write(envelope{ID: e.ID, Err: toWire(err)}, body, nil)
	return werr == nil && !errors.Is(err, ErrVersion)
}

func (p *peer) handle(e envelope, fds []int) (any, error) {
	if e.Op != opBind && len(fds) > 0 {
		unixfd.Close(fds)
		return nil, fmt.Errorf("%w: %s with descriptors", ErrInvalid, e.Op)
	}
	if !p.greeted && e.Op != opHello {
		unixfd.Close(fds)
		return nil, fmt.Errorf("%w: %s before hello", ErrVersion, e.Op)
	}
	switch e.Op {
	case opHello:
		return p.hello(e)
	case opBind:
		return p.bind(e, fds)
	case opUpdate:
		var b updateBody
		if err := decode(e, &b); err != nil {
			return nil, err
		}
		bound, err := p.handler.Update(b.VM, b.Spec)
		return orNil(bound, err)
	case opList:
		return listBody{p.handler.List()}, nil
	case opTraffic:
		return trafficBody{p.handler.Traffic()}, nil
	case opUnreported:
		return p.handler.Untold(), nil
	case opStats:
		return p.handler.Stats(), nil
	case opShutdown:
		p.handler.Shutdown()
		return nil, nil
	}
	return p.handleVM(e)
}

// handleVM answers requests about one VM that contain only its name.
func (p *peer) handleVM(e envelope) (any, error) {
	var b vmBody
	if err := decode(e, &b); err != nil {
		return nil, err
	}
	switch e.Op {
	case opRelease:
		return nil, p.handler.Release(b.VM)
	case opFlows:
		flows, err := p.handler.Flows(b.VM)
		return orNil(flowsBody{flows}, err)
	case opRefusals:
		lines, err := p.handler.Refusals(b.VM)
		return orNil(linesBody{lines}, err)
	case opFacts:
		facts, err := p.handler.Facts(b.VM)
		if facts == nil {
			facts = json.RawMessage("null")
		}
		return orNil(facts, err)
	case opSubscribe:
		cancel, err := p.handler.Subscribe(b.VM, func(l Line) error {
			return p.conn.write(envelope{ID: e.ID}, l, nil)
		})
		if err == nil {
			p.cancel = append(p.cancel, cancel)
		}
		return nil, err
	}
	return nil, fmt.Errorf("%w: request %q", ErrInvalid, e.Op)
}

func (p *peer) hello(e envelope) (any, error) {
	var b helloBody
	if err := decode(e, &b); err != nil {
		return nil, err
	}
	if b.Version != Version {
		return nil, fmt.Errorf("%w: forkd-net has %d, the daemon %d", ErrVersion, Version, b.Version)
	}
	p.greeted = true
	return helloBody{Version: Version, Program: "forkd-net", Features: []string{featureProxy, featureMember}}, nil
}

func (p *peer) bind(e envelope, fds []int) (any, error) {
	var b bindBody
	err := decode(e, &b)
	if err == nil && (len(b.VMs) != len(fds) || len(fds) == 0) {
		err = fmt.Errorf("%w: bind of %d VMs with %d wires", ErrInvalid, len(b.VMs), len(fds))
	}
	if err != nil {
		unixfd.Close(fds)
		return nil, err
	}
	answer := boundBody{VMs: make([]Bound, len(fds))}
	for i, binding := range b.VMs {
		if i > 0 {
			binding.share(b.VMs[i-1])
		}
		b.VMs[i] = binding
		answer.VMs[i] = p.bindOne(binding, fds[i])
	}
	return answer, nil
}

func (p *peer) bindOne(b Binding, wire int) Bound {
	if err := b.check(); err != nil {
		unix.Close(wire)
		return Bound{Err: toWire(err)}
	}
	bound, err := p.handler.Bind(b, wire)
	bound.VM, bound.Err = b.VM, toWire(err)
	return bound
}

func decode(e envelope, into any) error {
	if err := json.Unmarshal(e.Body, into); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, e.Op, err)
	}
	return nil
}

// orNil returns body, or nil if err is set.
func orNil(body any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return body, nil
}
