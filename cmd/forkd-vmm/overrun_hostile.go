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

// With the tag hostile this program is a VMM that its guest has taken over: it tries what a test
// tells it on the connection that failpoints have in other tests. No release is built so, and
// without that connection it is as good as any. The test's end is in test/e2e.

// overrun says hello, does what the answer says on vCPUs' threads, and then serves further orders
// on a thread like those of requests, beside the VM.
func overrun(c *live.Controller) {
	if os.Getenv(failpoint.Variable) == "" {
		return
	}
	os.Unsetenv(failpoint.Variable) // the connection is this one's now
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
	go func() { // ends with the process, or with the test
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
