package httpapi_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/events"
)

// entries passes audit entries to a test.
type entries chan audit.Entry

func (c entries) Add(e audit.Entry)  { c <- e }
func (c entries) Stats() audit.Stats { return audit.Stats{} }

// paced returns a server with fast event streams for a test.
func (b *bench) paced(l httpapi.Limits) (url string, log *events.Log, ended entries) {
	b.t.Helper()
	log, ended = events.New(1<<32, 100_000, time.Now), make(entries, 10)
	l.Header, l.Body, l.Swallow, l.Waiting = time.Minute, time.Minute, time.Minute, 10
	server := httpapi.NewLimited(httpapi.Options{Engine: fakeengine.Roles(b.engine), Images: b.images, Events: log, Audit: ended}, l)
	s := httptest.NewServer(server.Handler(auth.Access{Token: token}))
	b.t.Cleanup(s.Close)
	b.t.Cleanup(log.Close)
	return s.URL, log, ended
}

func (b *bench) connect(url string) *http.Response {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	b.t.Cleanup(cancel)
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/events", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// A client that reads no events is disconnected, and does not block the code that adds events.
func TestAClientThatTakesNothingIsDisconnected(t *testing.T) {
	b := newBench(t)
	url, log, ended := b.paced(httpapi.Limits{Beat: time.Minute, Take: 50 * time.Millisecond})
	b.connect(url) // and does not read
	long := map[string]string{"reason": strings.Repeat("x", 64<<10)}
	for {
		select {
		case e := <-ended:
			if e.Action != "event.read" || e.Result != audit.Failed || !strings.Contains(e.Error, "timed out") {
				t.Errorf("got %+v", e)
			}
			return
		default:
			log.Add(events.Event{Kind: "sandbox.failed", Detail: long})
		}
	}
}

// Without events the client gets keep-alives, with an ID from which to resume.
func TestSignsOfLife(t *testing.T) {
	b := newBench(t)
	url, log, _ := b.paced(httpapi.Limits{Beat: 10 * time.Millisecond, Take: time.Minute})
	log.Add(events.Event{Kind: "sandbox.ready"})
	lines := bufio.NewScanner(b.connect(url).Body)
	var got []string
	for len(got) < 5 && lines.Scan() {
		got = append(got, lines.Text())
	}
	if want := "retry: 1000||: beat|id: 4294967297|"; strings.Join(got, "|") != want {
		t.Errorf("got %q", got)
	}
}
