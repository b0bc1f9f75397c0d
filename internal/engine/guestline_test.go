package engine_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/guestfork"
	"github.com/forkd/forkd/internal/guest/agentproto"
)

func TestARequestThatDrips(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	hasty := guestfork.New(guestfork.Config{
		Sandboxes: g.E.Table(), Begin: g.E.BeginRequest, BeginCall: g.E.BeginCall, Closing: g.E.Background(), Log: slog.Default(),
		Patience: 100 * time.Millisecond,
	})
	_, vm, err := g.E.Table().Running(g.Root.ID)
	if err != nil {
		t.Fatal(err)
	}
	dial, started := hasty.Dialer()
	started(vm.Proc)
	theirs, err := dial(agentproto.ForkPort)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	began := time.Now()
	for { // until the daemon closes it
		if _, err := theirs.Write([]byte(" ")); err != nil {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("a request may take as long as it likes")
		}
		time.Sleep(time.Millisecond)
	}
}
