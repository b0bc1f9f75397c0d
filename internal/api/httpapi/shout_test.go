package httpapi_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// shouting is an engine with the unclipped text of a guest in its errors.
type shouting struct {
	fakeengine.Flat
	events *events.Log
}

var shout = strings.Repeat("\x1b\u202e\x00", 200_000)

func (s shouting) Fork(_ context.Context, req sandbox.ForkRequest) (r sandbox.ForkResult, _ error) {
	for i := range req.N {
		err := sandbox.Errorf(sandbox.ErrGuestGone, "", "hook: %s", shout)
		s.events.Add(events.Event{Kind: sandbox.EventFailed, Sandbox: "sb-1", Detail: map[string]string{"reason": err.Error()}})
		r.Children = append(r.Children, sandbox.Child{Index: i + 1, Err: err})
	}
	return r, nil
}

func (s shouting) Branch(context.Context, sandbox.BranchRequest) (sandbox.BranchResult, error) {
	return sandbox.BranchResult{}, sandbox.Detailed(sandbox.Errorf(context.DeadlineExceeded, "", "guest: %s", shout), "x", shout)
}

// The answer, the list of events and the log clip the text of a guest that no earlier code clipped.
func TestAnswersEventsAndLogAreTheLastBound(t *testing.T) {
	b := newBench(t)
	happened := events.New(0, 0, b.now)
	var log bytes.Buffer
	b.h = httpapi.New(httpapi.Options{Engine: fakeengine.Roles(shouting{b.engine, happened}), Images: b.images, Events: happened,
		Audit: httpapi.NewAudit(b.audit, b.now), Keys: b.keys, Log: slog.New(guesttext.Handler(slog.NewTextHandler(&log, nil)))}).
		Handler(auth.Access{Token: token})
	b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`)
	many := b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":10}`)
	one := b.do("POST", "/v1/sandboxes/sb-00000001-0001/branch", `{"tag":"x"}`)
	wantError(t, one, api.CodeTimeout)
	held := 0
	enough := context.Canceled
	_ = happened.Follow(t.Context(), 0, func(e events.Event) error {
		held += len(e.Detail["reason"])
		if e.ID == happened.Last() {
			return enough
		}
		return nil
	})
	for what, n := range map[string]int{"the answer of 10 children": many.Body.Len() / 10, "an error": one.Body.Len(),
		"the events of 11 children": held / 11, "the log": log.Len() / 3, "the audit log": b.audit.Len() / 3} {
		if n > 20<<10 {
			t.Errorf("%s has %d bytes", what, n)
		}
	}
	t.Logf("answer of 10 children %d bytes, an error %d, events %d, log %d, audit %d",
		many.Body.Len(), one.Body.Len(), held, log.Len(), b.audit.Len())
	for what, text := range map[string]string{"the answer": many.Body.String() + one.Body.String(), "the log": log.String(),
		"the audit log": b.audit.String()} {
		if strings.ContainsAny(text, "\x1b\u202e\x00") || strings.Contains(text, `\u001b`) {
			t.Errorf("%s has control characters", what)
		}
	}
}
