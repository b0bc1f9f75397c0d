package guestfork_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/guestfork"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// The cost of a guest's calls for the daemon is limited, and other guests are not affected.
func TestAGuestThatHammersThePort(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	began := time.Now()
	hammered := make(chan int, 1)
	go func() {
		r, err := g.E.Eval(context.Background(), g.Root.ID, sandbox.EvalRequest{Code: "hammer 1000"})
		if err != nil {
			t.Error(err)
		}
		n, _ := strconv.Atoi(r.Result)
		hammered <- n
	}()
	for done := false; !done; {
		asked := time.Now()
		if len(g.E.List()) != 1 {
			t.Fatal("the sandbox is gone")
		}
		if took := time.Since(asked); took > 5*time.Second {
			t.Errorf("a list took %s", took)
		}
		select {
		case n := <-hammered:
			most := guestfork.CallBurst + int(time.Since(began).Seconds()*guestfork.CallRate) + 1
			if n < guestfork.CallBurst/2 || n > most {
				t.Errorf("%d of 1000 calls were let in, want at most %d", n, most)
			}
			done = true
		default:
		}
	}
	// Its own calls are accepted again.
	enginefake.Eventually(t, "room for a call", func() bool {
		_, err := g.TryCall(g.Root.ID, enginefake.Call{Req: forkwire.Request{Op: forkwire.OpWait, TimeoutMS: 1}})
		return err == nil
	})
}

// Forks cost more, so a guest may request fewer of them.
func TestAGuestThatAsksForForksWithoutEnd(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	limited, busy := 0, 0
	began := time.Now()
	for range 3 * guestfork.ForkBurst {
		a, err := g.TryCall(g.Root.ID, enginefake.Call{Req: forkwire.Request{Op: forkwire.OpFork, N: forkwire.MaxChildren, Token: g.Token()}})
		switch {
		case err != nil:
			t.Fatal(err)
		case a.Error != nil && a.Error.Code == forkwire.Limit:
			limited++
		case a.Error != nil && a.Error.Code == forkwire.Busy && strings.Contains(a.Error.Message, "forks a second"):
			busy++
		default:
			t.Fatalf("got %+v", a)
		}
	}
	if most := guestfork.ForkBurst + int(time.Since(began).Seconds()*guestfork.ForkRate) + 1; limited > most || busy == 0 {
		t.Errorf("%d forks were looked at and %d refused at once, want at most %d", limited, busy, most)
	}
}

// Only a child can leave a result: results of others are not read.
func TestResultsAreReadOnlyFromChildren(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	raw := fmt.Sprintf(`{"op":"exit","bytes":%d}`+"\n", forkwire.MaxResult) // without the result itself
	refused(g, g.Call(g.Root.ID, enginefake.Call{Raw: []byte(raw)}), forkwire.NotAChild, "")
	// A child may send a limited number of results concurrently. Here the calls announce one and do
	// not send it.
	child := g.Forked(g.Root.ID, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call, err := json.Marshal(enginefake.Call{Raw: []byte(raw)})
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan string, guestfork.MaxResults+1)
	for range guestfork.MaxResults + 1 {
		go func() {
			r, err := g.E.Eval(ctx, child, sandbox.EvalRequest{Code: "call " + string(call)})
			refused <- fmt.Sprint(r.Result, err)
		}()
	}
	select {
	case got := <-refused:
		if !strings.Contains(got, "exits of this sandbox are under way") {
			t.Errorf("got %s", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("all are read at once")
	}
}
