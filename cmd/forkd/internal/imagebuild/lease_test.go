package imagebuild

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/httpapi/fakedaemon"
)

// The sandboxes of a build live on while it works, and one that it has ended is not prolonged.
func TestABuildProlongsItsSandboxes(t *testing.T) {
	a := newAttacked(t)
	c, err := client.New(client.Options{URL: a.url, Token: fakedaemon.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "box", Image: "box"}, nil); err != nil {
		t.Fatal(err)
	}
	b := &Builder{Client: c, Report: nothing{}, leases: leases{client: c, every: time.Millisecond}}
	id, err := b.fork(t.Context(), "box", api.NetNone)
	if err != nil {
		t.Fatal(err)
	}
	ended, err := b.fork(t.Context(), "box", api.NetNone)
	if err != nil {
		t.Fatal(err)
	}
	b.kill(t.Context(), ended)
	none := 0.0
	if _, err := (client.Life{Client: c}).SetLife(t.Context(), id, api.LifeRequest{TTLSecs: &none}); err != nil {
		t.Fatal(err)
	}
	a.restart(0, "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.leases.renew(ctx); close(done) }()
	for len(a.requests()) < 2 {
		time.Sleep(time.Millisecond) // elapses: until it has been prolonged twice
	}
	cancel()
	<-done
	for _, request := range a.requests() {
		if request != "PATCH /v1/sandboxes/"+id+"/life" {
			t.Errorf("it sent %s", request)
		}
	}
	if got, err := c.Sandbox(t.Context(), id); err != nil || got.Life == nil || got.Life.DeadlineUnix == nil {
		t.Errorf("the sandbox has %+v, %v", got.Life, err)
	}
}

func (a *attacked) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen)
}
