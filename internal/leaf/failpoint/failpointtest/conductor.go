// Package failpointtest is a test's end of package failpoint: it sees the steps that
// other processes pass, and keeps them at those that are armed. The trap: a process
// that stands at a step stands until Disarm, or until it is killed.
package failpointtest

import (
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// maxStep bounds a step's name, in bytes.
const maxStep = 256

// Conductor listens to processes at their steps. Its methods are safe for concurrent use.
type Conductor struct {
	l    *net.UnixListener
	all  sync.WaitGroup // accept and serve
	path string

	mu      sync.Mutex // guards what follows
	passed  []failpoint.Step
	armed   map[failpoint.Step]chan struct{} // closed by Disarm
	reached map[failpoint.Step]bool
	conns   map[net.Conn]bool
	closed  bool
}

// Listen makes the socket path, whose directory is there.
func Listen(path string) (*Conductor, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("listen for failpoints: %w", err)
	}
	c := &Conductor{
		l: l, path: path, armed: map[failpoint.Step]chan struct{}{}, reached: map[failpoint.Step]bool{},
		conns: map[net.Conn]bool{},
	}
	c.all.Go(c.accept)
	return c, nil
}

// Environ is the environment of processes that the conductor stops.
func (c *Conductor) Environ() []string { return []string{failpoint.Variable + "=" + c.path} }

// Passed are the steps that were passed since the last call, each once, in order.
func (c *Conductor) Passed() []failpoint.Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := c.passed
	c.passed = nil
	return passed
}

// Arm keeps every process that comes by a step there.
func (c *Conductor) Arm(s failpoint.Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed[s] == nil {
		c.armed[s] = make(chan struct{})
	}
	delete(c.reached, s)
}

// Disarm lets them go on.
func (c *Conductor) Disarm(s failpoint.Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disarmLocked(s)
}

func (c *Conductor) disarmLocked(s failpoint.Step) {
	if c.armed[s] != nil {
		close(c.armed[s])
	}
	delete(c.armed, s)
	delete(c.reached, s)
}

// Reached tells whether a process has come to an armed step.
func (c *Conductor) Reached(s failpoint.Step) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reached[s]
}

// Close lets all processes go on, for good.
func (c *Conductor) Close() {
	c.l.Close()
	c.mu.Lock()
	c.closed = true
	for s := range c.armed {
		c.disarmLocked(s)
	}
	for conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	c.all.Wait()
}

func (c *Conductor) accept() {
	for {
		conn, err := c.l.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		if c.closed {
			conn.Close()
		} else {
			c.conns[conn] = true
			c.all.Go(func() { c.serve(conn) })
		}
		c.mu.Unlock()
	}
}

// serve answers a process until it ends.
func (c *Conductor) serve(conn net.Conn) {
	defer func() {
		c.mu.Lock()
		delete(c.conns, conn)
		c.mu.Unlock()
		conn.Close()
	}()
	buf := make([]byte, maxStep)
	for {
		n, err := conn.Read(buf)
		if err != nil || n == 0 {
			return
		}
		if disarmed := c.pass(failpoint.Step(buf[:n])); disarmed != nil {
			<-disarmed
		}
		if _, err := conn.Write([]byte{1}); err != nil {
			return
		}
	}
}

// pass notes a step; the channel is of one that is armed.
func (c *Conductor) pass(s failpoint.Step) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.passed, s) {
		c.passed = append(c.passed, s)
	}
	if c.armed[s] == nil {
		return nil
	}
	c.reached[s] = true
	return c.armed[s]
}
