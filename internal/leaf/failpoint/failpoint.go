// Package failpoint marks the steps of operations between which a crash or an error can
// occur. It owns the list of steps. Tests use it to stop a process at a step, or to make
// the step fail. Any package may call Here and At, which have no effect outside tests:
//
//   - Set installs a function that every step of this process calls, for tests within
//     one process.
//   - A process with a socket in its variable FORKD_TEST_FAILPOINTS reports each step
//     there, and continues when it gets an answer. Package failpointtest is the other
//     end. A VMM does not open the socket: it inherits a connection, and the variable
//     holds the descriptor.
//
// Beware: a process stopped at a step that holds a lock blocks all users of the lock.
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

// Variable holds the socket's path, or the prefix inherited followed by the descriptor.
const (
	Variable  = "FORKD_TEST_FAILPOINTS"
	inherited = "fd:"
)

var (
	hook   atomic.Pointer[func(Step) error]
	socket = sync.OnceValue(func() string { return os.Getenv(Variable) })
	// connection is the inherited connection, or nil.
	connection = sync.OnceValue(inherit)
	// asking is held while a step waits for its answer on the inherited connection.
	asking sync.Mutex
)

// Here is called between the step s and the next step.
func Here(s Step) { _ = At(s) }

// At is like Here for a step that can fail, so that tests can inject an error.
func At(s Step) error {
	if h := hook.Load(); h != nil {
		return (*h)(s)
	}
	if socket() != "" {
		stop(s)
	}
	return nil
}

// Set makes every step of this process call h. At returns h's result.
func Set(h func(Step) error) (unset func()) {
	hook.Store(&h)
	return func() { hook.Store(nil) }
}

// Connect returns a connection for a child process that inherits its descriptors. It returns nil outside tests.
// The caller closes it.
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

// Environ returns the environment of a process inheriting a connection as descriptor fd.
func Environ(fd int) []string { return []string{Variable + "=" + inherited + strconv.Itoa(fd)} }

// Child returns the environment of a process with its own connections. It returns nil outside tests.
func Child() []string {
	if s := socket(); s != "" && !strings.HasPrefix(s, inherited) {
		return []string{Variable + "=" + s}
	}
	return nil
}

func dial() (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket(), Net: "unixpacket"})
}

// stop ignores errors: a test fails anyway if its step is not reached.
func stop(s Step) {
	if strings.HasPrefix(socket(), inherited) {
		asking.Lock()
		defer asking.Unlock()
		if c := connection(); c != nil {
			ask(c, s)
		}
		return
	}
	// Use one connection per step, so that other steps of this process do not wait for it.
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
