package hostileagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/ingress"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
)

const daemonToken = "0123456789abcdef0123456789abcdef"

// engine is a fake engine with one agent for all of its guests.
type engine struct {
	*fakeengine.Engine
	dial agentclient.DialFunc
}

func (e engine) DialAgent(ctx context.Context, _ string) (net.Conn, error) { return e.dial(ctx) }

// daemon serves both APIs over one sandbox with a hostile agent.
type daemon struct {
	h       http.Handler
	id      string
	records *records.Store
}

func newDaemon(t *testing.T, dial agentclient.DialFunc) *daemon {
	t.Helper()
	images := fakeengine.NewImages("base")
	e := engine{fakeengine.New(images), dial}
	t.Cleanup(e.Close)
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "base", Image: "base"}, nil); err != nil {
		t.Fatal(err)
	}
	res, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "base", N: 1})
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{id: res.Children[0].Info.ID}
	if d.records, _, err = records.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	guard := fakeengine.Guard{Of: e.Engine}
	h := e2bapi.New(e2bapi.Options{Engine: e, Records: d.records, Domain: ingress.DefaultDomain,
		Ports:        ingress.New(ingress.Config{Domain: ingress.DefaultDomain, Dialer: e, Guard: guard}),
		Authenticate: func(r *http.Request) (context.Context, error) { return r.Context(), nil }})
	d.h = httpapi.New(httpapi.Options{Engine: fakeengine.Roles(e), Images: images, Ingress: h}).Handler(auth.Access{Token: daemonToken})
	if err := d.records.Put(records.Record{ID: d.id, Template: "base", EnvdToken: "secret"}); err != nil {
		t.Fatal(err)
	}
	return d
}

// get sends a request; headers come in pairs.
func (d *daemon) get(ctx context.Context, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil).WithContext(ctx)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, r)
	return w
}

// measure requests the sandbox's metrics from the E2B API. It returns an error if there are none.
func (d *daemon) measure(ctx context.Context) error {
	w := d.get(ctx, "/sandboxes/"+sandbox.DNSID(d.id)+"/metrics", "X-API-KEY", "x")
	var samples []map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &samples); err != nil || w.Code != http.StatusOK {
		return fmt.Errorf("%d %s: %w", w.Code, w.Body, err)
	}
	if len(samples) == 0 {
		return errors.New("no sample")
	}
	return nil
}

// A guest's report on its usage is bounded. After any other answer there is no sample.
func TestMetricsAreBounded(t *testing.T) {
	const plain = "application/json"
	chunked := raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
	gzip := raw("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")
	for name, a := range map[string]attack{
		"an endless status line":     forever(raw("HTTP/1.1 200 ")),
		"endless headers":            after(raw("HTTP/1.1 200 OK\r\n"), forever(raw("A: b\r\n"))),
		"endless early hints":        forever(raw("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n")),
		"endless 100s":               forever(raw("HTTP/1.1 100 Continue\r\n\r\n")),
		"a switch of protocols":      cut(raw("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")),
		"an endless object":          answer(200, plain, forever(raw(`{"cpu_count":1,`))),
		"endless spaces":             answer(200, plain, after(raw(`{"cpu_count":1`), forever(raw(" ")))),
		"deep nesting":               answer(200, plain, cut(raw(strings.Repeat(`{"a":`, 12<<10)))),
		"many fields":                answer(200, plain, cut(raw("{"+strings.Repeat(`"a":{},`, 9<<10)))),
		"a number that is too large": answer(200, plain, cut(raw(`{"mem_total":1e999}`))),
		"a number that is a text":    answer(200, plain, cut(raw(`{"mem_total":"1"}`))),
		"two objects":                answer(200, plain, cut(raw(`{"cpu_count":1}{"cpu_count":2}`))),
		"a bomb":                     cut(gzip, gzipped(64<<20)),
		"an endless chunk extension": after(append(chunked, "1;"...), forever(raw("a"))),
		"tiny chunks":                after(chunked, forever(raw("1\r\n \r\n"))),
		"an endless trailer":         after(append(chunked, "0\r\n"...), forever(raw("A: b\r\n"))),
		"less than the length":       cut(raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")),
		"a refusal without end":      answer(500, plain, forever(raw("a"))),
		"no HTTP":                    forever([]byte{0xff}),
		"no answer":                  cut(),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, listen(t, overHTTP("/metrics", a)))
			_ = attacked(t, d.measure)
		})
	}
}

// An honest guest has a sample.
func TestHonestMetrics(t *testing.T) {
	d := newDaemon(t, listen(t, overHTTP("/metrics", answer(200, "application/json", cut(raw(`{"cpu_count":1,"mem_total":9}`))))))
	if err := d.measure(t.Context()); err != nil {
		t.Error(err)
	}
}
