// Package requestinfo has the facts of one request, which handlers add while they serve it: its ID and trace, its
// sender, its objects and its error. The context carries them to the audit log, the metrics, the spans and the log.
package requestinfo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

// Asker is the sender of a request, as proved by a key. The zero Asker is the operator, who sees
// everything.
type Asker struct {
	Key, Name string // ID of the key, and its name
	Tenant    string // its tenant; empty: the operator
}

// Info holds the facts of one request. Only one goroutine writes the Info of a request.
type Info struct {
	ID                                       string
	Asker                                    Asker
	Trace                                    tracecontext.Context
	Principal, Sandbox, Snapshot, Image, Err string
	Object, Text                             string // the request's object without a field of its own; more words on it
	Count                                    int
	Reason                                   api.Reason // of the error
	Act                                      Act
	// Control controls the request's connection. It is nil outside a server.
	Control *http.ResponseController
	// Routed is the request in the form of the mux, with the pattern and the values of the path.
	Routed *http.Request
}

type infoKey struct{}

// With returns a context of the request with the facts n.
func With(ctx context.Context, n *Info) context.Context {
	return context.WithValue(ctx, infoKey{}, n)
}

// From returns the request's facts. Outside a request it returns an unused Info.
func From(ctx context.Context) *Info {
	if n, ok := ctx.Value(infoKey{}).(*Info); ok {
		return n
	}
	return new(Info)
}

// Act is the audit information from a handler of another API. A handler may send it in parts: empty
// fields change nothing.
type Act struct {
	Action string // replaces the route's action, unless empty
	Read   bool   // it changes nothing; used with Action
	// Agent is the path of a request to a sandbox's agent. The native API's names apply to it.
	Agent string
	// Principal is the sender's proof of identity, unless it was a key. Tenant is the owner of the
	// sandbox. Both are set only after the check.
	Principal, Tenant string
	// Sandbox is an ID and Snapshot a tag: the request's objects, clipped to 500 bytes.
	Sandbox, Snapshot string
	Error             string // message of the failure, clipped to 500 bytes
	Count             int    // requested sandboxes; the maximum of all parts
}

// NoteAct adds to the audit line of a request's context. Only the goroutine that serves the request
// may call it.
func NoteAct(ctx context.Context, a Act) {
	n := From(ctx)
	if a.Action != "" {
		n.Act.Action, n.Act.Read = a.Action, a.Read
	}
	for _, f := range []struct{ to, from *string }{{&n.Act.Agent, &a.Agent}, {&n.Principal, &a.Principal},
		{&n.Asker.Tenant, &a.Tenant}, {&n.Sandbox, &a.Sandbox}, {&n.Snapshot, &a.Snapshot}, {&n.Err, &a.Error}} {
		if *f.from != "" {
			*f.to = ellipsis.Clip(*f.from, 500)
		}
	}
	n.Count = max(n.Count, a.Count)
}

// NoteError records the error of the answer.
func NoteError(ctx context.Context, f *apierror.Error) {
	n := From(ctx)
	n.Err, n.Reason = ellipsis.Clip(f.Message, 500), f.Reason
}

// Proved reports whether the client proved an identity. Requests to servers in sandboxes prove no
// identity.
func (n *Info) Proved() bool { return n.Principal != "" && n.Principal != IngressRoute }

// LogAttr returns the IDs of the request and its trace for a line of the log.
func (n *Info) LogAttr() slog.Attr {
	attrs := []slog.Attr{slog.String("request", n.ID)}
	if id := n.Trace.TraceID(); id != "" {
		attrs = append(attrs, slog.String("trace", id))
	}
	return slog.GroupAttrs("", attrs...)
}

// NewID returns the ID of one request, for its answer, the log and the audit log.
func NewID() string {
	var b [8]byte
	rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// ID returns the ID of a context's request. It is empty outside a request.
func ID(ctx context.Context) string { return From(ctx).ID }

// IngressRoute is the route of requests to sandboxes in the metrics, and their principal in the
// audit log.
const IngressRoute = "ingress"

// AgentRoute is the pattern of requests to agents.
const AgentRoute = "/v1/sandboxes/{id}/agent/{path...}"
