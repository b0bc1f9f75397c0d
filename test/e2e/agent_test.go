package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// An agent's crash ends its guest, because it is the guest's first process. The sandbox fails
// within a moment, with the reason, and so do the requests under way in it.
func TestAnAgentThatCrashes(t *testing.T) {
	kvmtest.Soak(t) // emulated, the console takes half a minute for the agent's last messages
	d := shared(t)
	d.unchanged()
	sb := d.fork(1)[0]
	began := time.Now()
	_, err := d.c.Exec(t.Context(), sb.ID, api.ExecRequest{Args: []string{"sh", "-c", "kill -ABRT 1; sleep 7791"}, User: "root", TimeoutSecs: 2 * patience.Seconds()})
	wantError(t, err, api.CodeGuestGone, sb.ID)
	t.Logf("after %s", time.Since(began))
	var info api.SandboxInfo
	eventually(t, "failure of its sandbox", func() bool {
		var err error
		if info, err = d.c.Sandbox(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		return info.Status == api.SandboxFailed
	})
	if took := time.Since(began); took > 2*patience { // its last messages pass through a slow console
		t.Errorf("that took %s", took)
	}
	if !strings.Contains(info.Reason, "reset") && !strings.Contains(info.Reason, "reboot") && !strings.Contains(info.Reason, "panic") {
		t.Errorf("the reason is %q", info.Reason)
	}
	_, err = d.c.Exec(t.Context(), sb.ID, api.ExecRequest{Args: []string{"true"}})
	wantError(t, err, api.CodeGuestGone, sb.ID)
}

// stalled accepts a number of bytes and then blocks until it is released.
type stalled struct {
	left  int
	full  chan struct{} // closed when it stops accepting
	letGo <-chan struct{}
}

func (s *stalled) Write(b []byte) (int, error) {
	if s.left > 0 {
		s.left -= len(b)
		return len(b), nil
	}
	if s.full != nil {
		close(s.full)
		s.full = nil
	}
	<-s.letGo
	return 0, errors.New("gone")
}

// A program that prints more than its client reads blocks. The data waiting for the client is
// bounded at every place, and the sandbox and the program still obey.
func TestAClientThatStopsReading(t *testing.T) {
	d := shared(t)
	id := d.oneSandbox()
	d.unchanged()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	info, err := d.c.Sandbox(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	memory := func() map[string]int64 {
		var agent int64
		fmt.Sscan(d.sh(id, "awk '/^VmRSS/{print $2}' /proc/1/status"), &agent)
		return map[string]int64{"agent": agent << 10, "VMM": anonymous(t, *info.PID), "daemon": anonymous(t, d.pid())}
	}
	before := memory()
	full := make(chan struct{})
	out := &stalled{left: 2 << 20, full: full, letGo: ctx.Done()}
	ended := make(chan error, 1)
	go func() {
		_, err := d.c.ExecStream(ctx, id, client.ExecOptions{Args: []string{"sh", "-c", "yes 123456789 | head -c 1000000000; sleep 7792"}, Stdout: out})
		ended <- err
	}()
	select {
	case <-full:
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	case <-time.After(patience):
		t.Fatal("2 MiB of output took too long")
	}
	// The program prints until all buffers are full. Then its output stalls.
	var printed, last string
	eventually(t, "standstill", func() bool {
		last, printed = printed, d.sh(id, "cat /proc/$(pidof head)/io | grep wchar")
		return printed == last
	})
	for who, now := range memory() {
		if grown := now - before[who]; grown > 24<<20 {
			t.Errorf("the %s has %d bytes more than before", who, grown)
		}
	}
	d.alive(api.SandboxInfo{ID: id})
	cancel()
	if err := <-ended; err == nil {
		t.Error("the program ended well")
	}
	eventually(t, "end of the program", func() bool { return d.sh(id, "pidof head || true") == "" })
	d.alive(api.SandboxInfo{ID: id})
}

// anonymous returns a process's anonymous memory, in bytes.
func anonymous(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "RssAnon:")
	if _, err := fmt.Sscanf(rest, "%d kB", &bytes); err != nil {
		t.Fatal(err)
	}
	return bytes << 10
}
