package hostileagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/guestfork"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// maxLineHeap bounds the memory of all calls of one guest: two results, and for each call a reader,
// a line, and the garbage of its decoding.
const maxLineHeap = 64 << 20

// noOperations refuses all forks.
type noOperations struct{}

func (noOperations) Branch(context.Context, sandbox.BranchRequest) (sandbox.BranchResult, error) {
	return sandbox.BranchResult{}, errors.New("no branches in this test")
}

func (noOperations) Fork(context.Context, sandbox.ForkRequest) (sandbox.ForkResult, error) {
	return sandbox.ForkResult{}, errors.New("no forks in this test")
}

// forkLine returns the daemon's end of one guest's calls. The guest's sandbox may fork, and is a
// child.
func forkLine(t *testing.T, patience time.Duration) (dial client.HostDialer) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	table := sandboxes.New(sandboxes.Config{Log: log, Elapsed: func() time.Duration { return 0 }, Now: time.Now,
		Tell: func(string, string, map[string]string) {}, Events: sandboxes.Events{Adding: func(sandbox.Info) {},
			Dropped: func(sandbox.Info) {}, Ended: func(sandbox.Info, bool) {}}})
	vm := &vmproc.VM{Proc: &client.Process{}, Dir: t.TempDir(), Disks: &vmproc.Disks{}}
	info := sandbox.Info{ID: "sb-00000001-0001", Status: sandbox.StatusRunning,
		Kin: sandbox.Kin{MayFork: true, Parent: "sb-00000000-0001"}}
	if err := table.Add(sandbox.Identity{ID: info.ID}, info, vm); err != nil {
		t.Fatal(err)
	}
	closing, end := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	begin := func() (func(), error) { calls.Add(1); return calls.Done, nil }
	f := guestfork.New(guestfork.Config{
		Limits: sandbox.DefaultTree, Branches: 4, RunDir: t.TempDir(), Sandboxes: table, Operations: noOperations{},
		Begin: func(context.Context) (context.Context, func(), error) {
			done, err := begin()
			return closing, done, err
		},
		BeginCall: begin, Closing: closing, Patience: patience, Log: log,
	})
	dial, started := f.Dialer()
	started(vm.Proc)
	t.Cleanup(func() { end(); calls.Wait() })
	return dial
}

// attackLine makes a guest begin as many calls as possible and attack on each. It returns the
// number of accepted calls after the daemon has ended all of them.
func attackLine(t *testing.T, dial client.HostDialer, a attack) (in int) {
	t.Helper()
	var guests sync.WaitGroup
	for range guestfork.MaxCalls + 20 {
		f, err := dial(agentproto.ForkPort)
		if err != nil {
			continue
		}
		in++
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		guests.Go(func() {
			defer c.Close()
			sent := make(chan struct{})
			go func() { defer close(sent); a(c) }()
			_, _ = io.Copy(io.Discard, c) // until the daemon closes the connection
			c.Close()
			<-sent
		})
	}
	guests.Wait()
	return in
}

// The calls of a guest are bounded in number, in memory and in time, for any data it sends.
func TestForkLinesAreBounded(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // reduces the effect of garbage
	line := func(format string, args ...any) []byte { return fmt.Appendf(nil, format+"\n", args...) }
	token := strings.Repeat("0a", 16)
	result := make([]byte, forkwire.MaxResult)
	for name, a := range map[string]attack{
		"garbage":                    forever([]byte("a")),
		"an object without end":      forever([]byte(`{"op":"exit","ids":["",`)),
		"no line":                    once(),
		"half a line":                once([]byte(`{"op":"wait`)),
		"hangs up":                   cut(),
		"deep nesting":               once(line(`{"op":"wait","ids":%s`, strings.Repeat("[", 60<<10))),
		"many ids":                   once(line(`{"op":"wait","ids":[%s""]}`, strings.Repeat(`"",`, 20<<10))),
		"an unknown operation":       once(line(`{"op":"x"}`)),
		"a huge result":              once(line(`{"op":"exit","bytes":2000000000}`)),
		"a negative result":          once(line(`{"op":"exit","bytes":-1}`)),
		"a result that never comes":  once(line(`{"op":"exit","bytes":%d}`, forkwire.MaxResult)),
		"most of a result":           once(line(`{"op":"exit","bytes":%d}`, forkwire.MaxResult), result[1:]),
		"a wait and words for ever":  after(line(`{"op":"wait","timeout_ms":50}`), forever([]byte{forkwire.Collected})),
		"a fork and words for ever":  after(line(`{"op":"fork","n":1,"token":"%s"}`, token), forever([]byte("{\n"))),
		"a fork of too many":         once(line(`{"op":"fork","n":2000000000,"token":"%s"}`, token)),
		"a fork with a long token":   once(line(`{"op":"fork","n":1,"token":"%s"}`, strings.Repeat("a", 60<<10))),
		"a fork that is asked again": once(line(`{"op":"fork","n":1,"again":true,"token":"%s"}`, token)),
	} {
		t.Run(name, func(t *testing.T) {
			dial := forkLine(t, 150*time.Millisecond)
			began, in := time.Now(), 0
			used := watch(func() { in = attackLine(t, dial, a) })
			if took := time.Since(began); took > patience {
				t.Errorf("the calls ended after %s", took)
			}
			if in == 0 || in > guestfork.CallBurst+guestfork.CallRate {
				t.Errorf("%d calls were let in", in)
			}
			// Two goroutines of the daemon for each call, and two of the test.
			if used.heap > maxLineHeap || used.goroutines > 4*guestfork.MaxCalls+50 {
				t.Errorf("the calls used %d MiB and %d goroutines", used.heap>>20, used.goroutines)
			}
		})
	}
}

// Open calls count against the limit of further calls.
func TestForkLinesAreCounted(t *testing.T) {
	dial := forkLine(t, patience)
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	for range guestfork.MaxCalls + 20 {
		if f, err := dial(agentproto.ForkPort); err == nil {
			open = append(open, f)
		}
	}
	if len(open) != guestfork.MaxCalls {
		t.Errorf("%d calls are open at once, want %d", len(open), guestfork.MaxCalls)
	}
	if f, err := dial(agentproto.AgentPort); err == nil {
		f.Close()
		t.Error("another port of the host is open")
	}
}
