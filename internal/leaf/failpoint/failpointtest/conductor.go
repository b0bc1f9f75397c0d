// Package failpointtest is the test's end of package failpoint. It sees the steps passed by other processes and
// stops them at armed steps. Beware: a process stopped at a step stays there until Disarm, or until it is killed.
package failpointtest

import (
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// maxStep limits a step's name, in bytes.
const maxStep = 256

// Conductor waits for processes to report their steps. Its methods are safe for concurrent use.
type Conductor struct {
	l    *net.UnixListener
	all  sync.WaitGroup // accept and serve
	path string

	mu      sync.Mutex // guards the fields below
	passed  []failpoint.Step
	armed   map[failpoint.Step]chan struct{} // closed by Disarm
	reached map[failpoint.Step]bool
	conns   map[net.Conn]bool
	closed  bool
}

// Listen creates a socket at path. The directory must exist.
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

// Environ returns the environment for processes controlled by the conductor.
func (c *Conductor) Environ() []string { return []string{failpoint.Variable + "=" + c.path} }

// Passed returns the steps passed since the last call, each once, in order.
func (c *Conductor) Passed() []failpoint.Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := c.passed
	c.passed = nil
	return passed
}

// Arm stops every process that reaches the step.
func (c *Conductor) Arm(s failpoint.Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed[s] == nil {
		c.armed[s] = make(chan struct{})
	}
	delete(c.reached, s)
}

// Disarm lets the stopped processes continue.
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

// Reached reports whether a process has reached an armed step.
func (c *Conductor) Reached(s failpoint.Step) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reached[s]
}

// Close lets all processes continue and disables all steps.
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

// pass records a step. It returns the step's channel if the step is armed, and nil otherwise.
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
