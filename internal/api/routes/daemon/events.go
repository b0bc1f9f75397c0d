package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/listfilter"
)

// eventStream is the content type of server-sent events.
const eventStream = "text/event-stream"

// EventPace sets the times of an event stream.
type EventPace struct {
	Beat  time.Duration // interval of keep-alives if there are no events
	Write time.Duration // limit for the client to read sent data
}

// DefaultEventPace returns the times of the daemon.
func DefaultEventPace() EventPace { return EventPace{Beat: 15 * time.Second, Write: 10 * time.Second} }

// eventRoutes stream the daemon's events.
type eventRoutes struct {
	respond.Answers
	askers    auth.Askers
	streams   *Streams
	events    *events.Log // may be nil
	pace      EventPace
	followers followers
}

func (s *eventRoutes) add(rt *routing.Router) {
	query := func(name, what, kind string) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: what, Schema: &huma.Schema{Type: kind}}
	}
	rt.RawRoute(huma.Operation{
		OperationID: "events", Method: http.MethodGet, Path: "/v1/events", Tags: []string{"events"},
		Summary: "Events of the daemon, as server-sent events",
		Description: "Each has the event's id, its kind as the name, and an Event as the data. " +
			"A tenant sees its own, with ids of its own.",
		Parameters: []*huma.Param{
			{Name: "Last-Event-ID", In: "header", Description: "Go on after this event; before after",
				Schema: &huma.Schema{Type: "integer"}},
			{Name: "filter", In: "query", Description: "Filter as label=KEY or label=KEY=VALUE; may be repeated, and " +
				"all labels must match", Schema: &huma.Schema{Type: "array", Items: &huma.Schema{Type: "string"}}},
			query("after", "Start after this event; 0: with the oldest one in the buffer; absent: with new events", "integer"),
			query("sandbox", "Only of this sandbox", "string"), query("snapshot", "Only of this snapshot", "string"),
			query("kind", "Filter by kinds, separated by commas; a kind that ends in a dot is a prefix", "string"),
		},
		Responses: map[string]*huma.Response{"200": {Description: "Events, until client or daemon close the connection",
			Content: map[string]*huma.MediaType{eventStream: {Schema: rt.SchemaOf(api.Event{})}}}},
		Errors: []int{400, 401, 501, 503},
	}, s.follow)
}

// eventQuery selects events.
type eventQuery struct {
	after             uint64
	sandbox, snapshot string
	kinds             []string // if empty, all
	labels            listfilter.Filter
}

// eventFilters are the filters of events.
var eventFilters = listfilter.Rules{listfilter.Label: nil}

func eventQueryOf(r *http.Request) (q eventQuery, err error) {
	v := r.URL.Query()
	q = eventQuery{after: events.Now, sandbox: sandbox.CanonicalID(v.Get("sandbox")), snapshot: v.Get("snapshot")}
	if q.kinds, err = eventKinds(v); err != nil {
		return q, err
	}
	if q.labels, err = listfilter.Parse(v["filter"], eventFilters); err != nil {
		return q, apierror.New(api.CodeInvalid, "", "%v", err)
	}
	name, text := "Last-Event-ID", r.Header.Get("Last-Event-ID")
	if text == "" {
		name, text = "after", v.Get("after")
	}
	if text == "" {
		return q, nil
	}
	if q.after, err = strconv.ParseUint(text, 10, 53); err != nil {
		return q, apierror.New(api.CodeInvalid, "", "%s %q: want the id of an event", name, ellipsis.Clip(text, 40))
	}
	return q, nil
}

// eventKinds parses the kinds. An unknown kind is an error.
func eventKinds(v url.Values) (kinds []string, err error) {
	if v.Get("kind") == "" {
		return nil, nil
	}
	for _, kind := range strings.Split(strings.Join(v["kind"], ","), ",") {
		known := func(k string) bool { return k == kind || strings.HasSuffix(kind, ".") && strings.HasPrefix(k, kind) }
		if !slices.ContainsFunc(sandbox.EventKinds(), known) {
			return nil, apierror.New(api.CodeInvalid, "", "kind %q: want one of %s, or a prefix that ends in a dot",
				ellipsis.Clip(kind, 40), strings.Join(sandbox.EventKinds(), ", "))
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// wants reports whether an event matches the query. A gap always matches.
func (q eventQuery) wants(e events.Event) bool {
	if e.Kind == events.KindGap {
		return true
	}
	if q.sandbox != "" && e.Sandbox != q.sandbox || q.snapshot != "" && e.Snapshot != q.snapshot {
		return false
	}
	if !q.labels.Matches(listfilter.Entry{Labels: e.Labels}) {
		return false
	}
	return len(q.kinds) == 0 || slices.ContainsFunc(q.kinds, func(kind string) bool {
		return kind == e.Kind || strings.HasSuffix(kind, ".") && strings.HasPrefix(e.Kind, kind)
	})
}

// visible reports whether the client may see an event. A tenant sees its own events and all gaps.
func (s *eventRoutes) visible(ctx context.Context, e events.Event) bool {
	return e.Kind == events.KindGap || s.askers.Visible(ctx, e.Owner)
}

func (s *eventRoutes) follow(w http.ResponseWriter, r *http.Request) error {
	if s.events == nil {
		return apierror.New(api.CodeUnsupported, "", "this daemon has no events")
	}
	q, err := eventQueryOf(r)
	if err != nil {
		return err
	}
	release, err := s.followers.take(s.askers.Of(r.Context()).Tenant)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := s.streams.context(r.Context())
	defer stop()
	view := s.events.Of(s.askers.Of(r.Context()).Tenant)
	if q.after == events.Now {
		q.after = view.Last()
	}
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-store")
	out := &eventWriter{w: w, rc: http.NewResponseController(w), patience: s.pace.Write}
	if err := out.send("retry: 1000\n\n"); err == nil {
		err = s.tell(ctx, out, view, q)
		s.end(ctx, out, err)
	}
	return nil // the status is sent
}

// errBeat ends a wait in which no events may have come.
var errBeat = errors.New("time for a sign of life")

// tell sends events until an error ends it.
func (s *eventRoutes) tell(ctx context.Context, out *eventWriter, view events.View, q eventQuery) error {
	last := q.after
	for {
		turn, cancel := context.WithTimeoutCause(ctx, s.pace.Beat, errBeat)
		err := view.Follow(turn, last, func(e events.Event) error {
			last = e.ID
			if !q.wants(e) || !s.visible(ctx, e) {
				return nil
			}
			return out.event(e)
		})
		cancel()
		if !errors.Is(err, errBeat) {
			return err
		}
		// The ID lets a client resume after events it did not select.
		if err := out.send(fmt.Sprintf(": beat\nid: %d\n\n", last)); err != nil {
			return err
		}
	}
}

// end sends the reason for the end to a connected client.
func (s *eventRoutes) end(ctx context.Context, out *eventWriter, err error) {
	f := apierror.New(api.CodeBusy, "", "%v", err)
	switch {
	case errors.Is(err, sandbox.ErrClosing), errors.Is(err, events.ErrClosed):
		f = apierror.New(api.CodeClosing, "", "the daemon stops")
	case errors.Is(err, principal.ErrKeyEnded):
		f = apierror.KeyEnded()
		requestinfo.NoteError(ctx, f)
	case !errors.Is(err, events.ErrSlow):
		requestinfo.NoteError(ctx, f)
		s.Log.Debug("a follower of events is gone", "reason", err, requestinfo.From(ctx).LogAttr())
		return
	default:
		requestinfo.NoteError(ctx, f)
		s.Log.Info("a follower of events was dropped", "reason", err, requestinfo.From(ctx).LogAttr())
	}
	f.RequestID = requestinfo.ID(ctx)
	data, err := json.Marshal(f)
	if err == nil {
		_ = out.send(fmt.Sprintf("event: %s\ndata: %s\n\n", api.EventEnd, data))
	}
}

// eventWriter sends to a possibly slow client, up to its patience.
type eventWriter struct {
	w        http.ResponseWriter
	rc       *http.ResponseController
	patience time.Duration
}

func (o *eventWriter) event(e events.Event) error {
	data, err := json.Marshal(api.Event(e))
	if err != nil {
		return err
	}
	return o.send(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.Kind, data))
}

func (o *eventWriter) send(text string) error {
	_ = o.rc.SetWriteDeadline(time.Now().Add(o.patience)) // a test recorder has no deadline
	defer func() { _ = o.rc.SetWriteDeadline(time.Time{}) }()
	_, err := o.w.Write([]byte(text))
	if err == nil {
		err = o.rc.Flush() // short events stay in the buffer until this flush
	}
	if err != nil {
		return fmt.Errorf("send to the client timed out after %s: %w", o.patience, err)
	}
	return nil
}
