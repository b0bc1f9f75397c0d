package client_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/events"
)

var errEnough = errors.New("enough")

// observed returns a client of a daemon with events and an audit log, and a function to stop the
// daemon.
func observed(t *testing.T) (*client.Client, *events.Log, func()) {
	t.Helper()
	dir := t.TempDir()
	record, err := audit.Open(audit.Config{Path: filepath.Join(dir, "audit.log")})
	if err != nil {
		t.Fatal(err)
	}
	log := events.New(1<<32, 0, time.Now)
	engine := fakeengine.New(fakeengine.NewImages())
	s := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(engine), Images: fakeengine.NewImages(), Events: log, Audit: record,
		AuditFile: record.Path()})
	l, err := listen.Listen(t.Context(), "unix://"+filepath.Join(dir, "s"), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, []listen.Listener{l}, time.Minute) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		engine.Close()
		if err := record.Close(time.Minute); err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(client.Options{URL: l.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, log, stop
}

// A client that was cut off resumes after its last event, and sees each event once. When the daemon
// stops, the client learns it immediately.
func TestEventsAreResumed(t *testing.T) {
	c, log, stop := observed(t)
	for i := range 20 {
		log.Add(events.Event{Kind: "sandbox.ready", Sandbox: fmt.Sprint(i)})
	}
	req := client.EventsRequest{All: true, Kinds: []string{"sandbox."}}
	seen := 0
	for seen < 20 {
		n := 0
		err := c.Events(t.Context(), req, func(e api.Event) error {
			if e.Sandbox != fmt.Sprint(seen) {
				t.Fatalf("%+v came after %d", e, seen)
			}
			seen++
			req.After, req.All = e.ID, false
			if n++; n == 3 || seen == 20 {
				return errEnough
			}
			return nil
		})
		if err != errEnough {
			t.Fatal(err)
		}
	}
	err := c.Events(t.Context(), client.EventsRequest{After: 7}, func(e api.Event) error {
		if e.Kind != api.EventGap {
			return nil
		}
		stop()
		return nil
	})
	if client.CodeOf(err) != api.CodeClosing {
		t.Errorf("got %v", err)
	}
}

func TestEventsThatCannotBeAskedFor(t *testing.T) {
	c, _, _ := observed(t)
	err := c.Events(t.Context(), client.EventsRequest{Kinds: []string{"x"}}, nil)
	var e *client.Error
	if !errors.As(err, &e) || e.Code != api.CodeInvalid || len(e.RequestID) != 16 {
		t.Errorf("got %+v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Events(ctx, client.EventsRequest{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestTheAuditLogIsFollowed(t *testing.T) {
	c, _, stop := observed(t)
	got := make(chan audit.Entry, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Audit(t.Context(), client.AuditRequest{Follow: true, Changes: true}, func(line []byte) error {
			e, err := audit.Decode(line)
			got <- e
			return err
		})
	}()
	if e := <-got; e.Action != audit.ActionOpened {
		t.Errorf("got %+v", e)
	}
	if err := c.Kill(t.Context(), "sb-none"); err == nil {
		t.Fatal("it was killed")
	}
	if e := <-got; e.Action != "sandbox.kill" || e.Result != audit.Refused || e.Sandbox != "sb-none" {
		t.Errorf("got %+v", e)
	}
	if r, err := c.VerifyAudit(t.Context()); err != nil || r.Lines < 2 {
		t.Errorf("got %+v, %v", r, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("got %v", err)
	}
}
