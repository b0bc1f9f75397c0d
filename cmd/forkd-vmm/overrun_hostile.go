//go:build hostile

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail/jailtest"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm/live"
)

// With the tag hostile this program acts as a VMM under its guest's control. A test sends attempts
// over the connection of the failpoints, and the program tries them. Releases are built without
// this tag. Without the connection this build behaves like any other. The test's side is in
// test/e2e.

// overrun sends a hello, runs the first order on the vCPU threads, and then serves further orders
// on a thread like the threads of requests, beside the VM.
func overrun(c *live.Controller) {
	if os.Getenv(failpoint.Variable) == "" {
		return
	}
	os.Unsetenv(failpoint.Variable) // overrun owns the connection from here on
	var st unix.Stat_t
	err := unix.Fstat(wire.FDFailpoints, &st)
	if err != nil {
		warn(fmt.Errorf("reach the test: %w", err))
		return
	}
	conn, err := net.FileConn(os.NewFile(wire.FDFailpoints, "test"))
	if err != nil {
		warn(fmt.Errorf("reach the test: %w", err))
		return
	}
	say(conn, jailtest.Hello{Socket: st.Ino})
	first, ok := next(conn)
	if !ok {
		return
	}
	if len(first.Try) > 0 {
		_ = c.OnVCPUThreads(func() error { return say(conn, first.Do()) })
	}
	go func() { // runs until the process or the test ends
		for o, ok := next(conn); ok; o, ok = next(conn) {
			say(conn, o.Do())
		}
	}()
}

func next(conn net.Conn) (o jailtest.Order, ok bool) {
	b := make([]byte, jailtest.MaxMessage)
	n, err := conn.Read(b)
	return o, err == nil && json.Unmarshal(b[:n], &o) == nil
}

func say(conn net.Conn, what any) error {
	b, err := json.Marshal(what)
	if err == nil {
		_, err = conn.Write(b)
	}
	return err
}
