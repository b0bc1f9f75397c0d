// Package failpoint marks the steps of operations that a crash or an error could
// separate. It owns the list of them and the one way in which tests stop a process
// at a step, or make the step fail. Any package may call Here and At, which do
// nothing outside tests:
//
//   - Set puts a function before every step of this process, for tests within one.
//   - A process whose variable FORKD_TEST_FAILPOINTS names a socket says each step
//     there and goes on when it is answered. Package failpointtest is the other end.
//     A VMM opens nothing: it inherits its connection, and the variable names the
//     descriptor.
//
// The trap: a step in a place where a lock is held holds up all that need it.
package failpoint

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Variable names the socket, or after inherited the descriptor.
const (
	Variable  = "FORKD_TEST_FAILPOINTS"
	inherited = "fd:"
)

var (
	hook   atomic.Pointer[func(Step) error]
	socket = sync.OnceValue(func() string { return os.Getenv(Variable) })
	// connection is the inherited one; nil: there is none.
	connection = sync.OnceValue(inherit)
	// asking is held while a step waits for its answer on the inherited connection.
	asking sync.Mutex
)

// Here is called between the step that s names and the next.
func Here(s Step) { _ = At(s) }

// At is Here where the step can fail, which a test may want.
func At(s Step) error {
	if h := hook.Load(); h != nil {
		return (*h)(s)
	}
	if socket() != "" {
		stop(s)
	}
	return nil
}

// Set has h called at every step of this process; what it returns is what At does.
func Set(h func(Step) error) (unset func()) {
	hook.Store(&h)
	return func() { hook.Store(nil) }
}

// Connect is a connection for a process that is started with descriptors of its own; nil
// outside tests. The caller closes it.
func Connect() (*os.File, error) {
	if socket() == "" {
		return nil, nil
	}
	c, err := dial()
	if err != nil {
		return nil, fmt.Errorf("connect to the test's failpoints: %w", err)
	}
	defer c.Close()
	return c.File()
}

// Environ is the environment of a process that inherits a connection as descriptor fd.
func Environ(fd int) []string { return []string{Variable + "=" + inherited + strconv.Itoa(fd)} }

// Child is the environment of a process that opens its connections itself; nil outside tests.
func Child() []string {
	if s := socket(); s != "" && !strings.HasPrefix(s, inherited) {
		return []string{Variable + "=" + s}
	}
	return nil
}

func dial() (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket(), Net: "unixpacket"})
}

// stop ignores errors: a test that does not see its step reached fails by that.
func stop(s Step) {
	if strings.HasPrefix(socket(), inherited) {
		asking.Lock()
		defer asking.Unlock()
		if c := connection(); c != nil {
			ask(c, s)
		}
		return
	}
	// One each: whatever else this process does is not to wait for it.
	if c, err := dial(); err == nil {
		ask(c, s)
		c.Close()
	}
}

func ask(c net.Conn, s Step) {
	if _, err := c.Write([]byte(s)); err == nil {
		_, _ = c.Read(make([]byte, 1))
	}
}

func inherit() net.Conn {
	fd, err := strconv.Atoi(strings.TrimPrefix(socket(), inherited))
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "failpoints")
	if f == nil {
		return nil
	}
	defer f.Close()
	c, _ := net.FileConn(f)
	return c
}
