package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// eventBench is a server with events. Requests may come from a tenant.
type eventBench struct {
	*bench
	log *events.Log
	url string
}

func newEventBench(t *testing.T, room int) *eventBench {
	b := newBench(t)
	log := events.New(1<<32, room, time.Now)
	s := httptest.NewServer(b.asTenants(httpapi.Options{Events: log}))
	t.Cleanup(s.Close)
	t.Cleanup(log.Close) // closes before the server: it ends the followers
	return &eventBench{b, log, s.URL}
}

func (b *eventBench) add(kind, id, owner string) {
	b.log.Add(events.Event{Kind: kind, Sandbox: id, Owner: owner})
}

// follow reads events until it has n of them.
func (b *eventBench) follow(query, last, tenant string, n int) []api.Event {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/v1/events"+query, nil)
	r.Header.Set(tenantHeader, tenant)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "text/event-stream" {
		b.t.Fatalf("%s, %s", resp.Status, ct)
	}
	var got []api.Event
	id, name := "", ""
	for lines := bufio.NewScanner(resp.Body); len(got) < n && lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			var e api.Event
			if err := json.Unmarshal([]byte(value), &e); err != nil || strconv.FormatUint(e.ID, 10) != id || e.Kind != name {
				b.t.Fatalf("%v: id %s, event %s, data %s", err, id, name, value)
			}
			got = append(got, e)
		}
	}
	return got
}

func ids(all []api.Event) string {
	var out []string
	for _, e := range all {
		out = append(out, e.Sandbox)
	}
	return strings.Join(out, " ")
}

func TestEventsAreFollowed(t *testing.T) {
	b := newEventBench(t, 100)
	for i, kind := range []string{sandbox.EventReady, sandbox.EventFailed, sandbox.EventSnapshotCreated, sandbox.EventEnded} {
		b.add(kind, "sb-"+strconv.Itoa(i), []string{"a", "b"}[i%2])
	}
	for _, c := range []struct{ query, last, tenant, want string }{
		{"?after=0", "", "", "sb-0 sb-1 sb-2 sb-3"},
		{"?after=0", "4294967298", "", "sb-2 sb-3"}, // the header is newer
		{"?after=4294967299", "", "", "sb-3"},
		{"?after=0", "", "a", "sb-0 sb-2"},
		{"?after=0", "", "b", "sb-1 sb-3"},
		{"?after=0&kind=sandbox.", "", "", "sb-0 sb-1 sb-3"},
		{"?after=0&kind=sandbox.ended,sandbox.ready", "", "a", "sb-0"},
		{"?after=0&sandbox=sb-1", "", "", "sb-1"},
	} {
		if got := ids(b.follow(c.query, c.last, c.tenant, len(strings.Fields(c.want)))); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
	for _, bad := range []string{"after=x", "after=-1", "after=18446744073709551615", "kind=x", "kind=sandbox", "kind=,"} {
		r := httptest.NewRecorder()
		b.asTenants(httpapi.Options{Events: b.log}).ServeHTTP(r, httptest.NewRequest("GET", "/v1/events?"+bad, nil))
		wantError(t, r, api.CodeInvalid)
	}
	wantError(t, b.do("GET", "/v1/events", ""), api.CodeUnsupported)
}

// Events are selected by the labels that their object had then, below each tenant's view.
func TestEventsByLabel(t *testing.T) {
	b := newEventBench(t, 100)
	for i, set := range []map[string]string{{"job": "7"}, {"job": "8", "team": ""}, nil, {"job": "7", "team": "a b"}} {
		b.log.Add(events.Event{Kind: sandbox.EventEnded, Sandbox: "sb-" + strconv.Itoa(i), Labels: set, Owner: []string{"a", "b"}[i%2]})
	}
	for _, c := range []struct{ filters, tenant, want string }{
		{"label=job", "", "sb-0 sb-1 sb-3"},
		{"label=job=7", "", "sb-0 sb-3"},
		{"label=job=7 label=team", "", "sb-3"},
		{"label=team=a b", "", "sb-3"},
		{"label=job=7", "a", "sb-0"},
		{"label=job", "b", "sb-1 sb-3"},
	} {
		q := url.Values{"after": {"0"}}
		for f := range strings.SplitSeq(strings.ReplaceAll(c.filters, " label", "\n"+"label"), "\n") {
			q.Add("filter", f)
		}
		got := b.follow("?"+q.Encode(), "", c.tenant, len(strings.Fields(c.want)))
		if ids(got) != c.want || got[0].Labels["job"] == "" {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
	for _, bad := range []string{"job=7", "label", "label=", "status=running", "label=" + strings.Repeat("x", 2000)} {
		r := httptest.NewRecorder()
		path := "/v1/events?filter=" + url.QueryEscape(bad)
		b.asTenants(httpapi.Options{Events: b.log}).ServeHTTP(r, httptest.NewRequest("GET", path, nil))
		wantError(t, r, api.CodeInvalid)
	}
}

// Every follower is informed of lost events, including tenants.
func TestAGapIsTold(t *testing.T) {
	b := newEventBench(t, 4)
	for i := range 10 {
		b.add(sandbox.EventReady, "sb-"+strconv.Itoa(i), "a")
	}
	got := b.follow("", "5", "a", 2)
	if got[0].Kind != api.EventGap || got[0].Detail["after"] != "5" || got[1].Sandbox != "sb-6" {
		t.Errorf("got %+v", got)
	}
	if got := b.follow("?kind=snapshot.&sandbox=sb-1", "5", "b", 1); got[0].Kind != api.EventGap {
		t.Errorf("got %+v", got)
	}
}

// A follower without parameters gets only new events.
func TestEventsFromNowOn(t *testing.T) {
	b := newEventBench(t, 10)
	b.add(sandbox.EventReady, "sb-old", "")
	r, _ := http.NewRequest(http.MethodGet, b.url+"/v1/events", nil)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b.add(sandbox.EventReady, "sb-new", "") // the header is here: it follows already
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			break
		}
	}
	if !strings.Contains(lines.Text(), "sb-new") {
		t.Errorf("got %s", lines.Text())
	}
	b.log.Close()
	rest := ""
	for lines.Scan() {
		rest += lines.Text() + "\n"
	}
	if !strings.Contains(rest, "event: end\ndata: {") || !strings.Contains(rest, string(api.CodeClosing)) {
		t.Errorf("it ends with %q", rest)
	}
}
