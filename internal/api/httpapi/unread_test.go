package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guestdelta"
	"github.com/forkd/forkd/internal/store/receipt"
)

// wordy is an engine with long answers.
type wordy struct{ *engine }

func (w wordy) DiffSnapshots(context.Context, sandbox.DiffRequest) (d sandbox.SnapshotDiff, _ error) {
	for i := range 10_000 {
		d.Files.Added = append(d.Files.Added, guestdelta.File{Path: fmt.Sprintf("/%0200d", i)})
	}
	return d, nil
}

func (w wordy) Receipts(receipt.Filter) (all []receipt.Receipt, _ error) {
	for i := range 1000 {
		all = append(all, receipt.Receipt{ID: fmt.Sprint(i), Error: strings.Repeat("e", 2000)})
	}
	return all, nil
}

func (w wordy) Flows(context.Context, string) ([]sandbox.NetFlow, error) {
	return make([]sandbox.NetFlow, 10_000), nil
}

// Memory panics like a bug.
func (w wordy) Memory(string) (sandbox.MemoryUse, error) { panic("a bug") }

// unread is a server of both APIs with a small budget, on a Unix socket with small buffers.
type unread struct {
	*tenants
	server  *httpapi.Server
	address string
	mine    string // evil's sandbox
}

const unreadMemory = 24 << 20

func newUnread(t *testing.T) *unread {
	u := &unread{tenants: newTenants(t)}
	u.engine.Limit = 5000
	into[api.SnapshotInfo](t, u.as(u.evil, "POST", "/v1/snapshots", `{"tag":"own","image":"python-numpy"}`), 201)
	for range 3 {
		made := into[[]api.SandboxInfo](t, u.as(u.evil, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":1000}`), 201)
		u.mine = made[0].ID
	}
	u.engine.ConsoleText = strings.Repeat(strings.Repeat("c", 4000)+"\n", 1000)
	log := events.New(0, 0, time.Now)
	for range 1000 {
		log.Add(events.Event{Kind: sandbox.EventReady, Owner: "evil", Detail: map[string]string{"d": strings.Repeat("e", 1000)}})
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	lines, err := audit.Open(audit.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		lines.Add(audit.Entry{Action: "sandbox.exec", Result: audit.OK, Sandbox: fmt.Sprint(i), Path: strings.Repeat("p", 300)})
	}
	if err := lines.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	store, _, err := records.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 4000)
	for i := range names {
		names[i] = fmt.Sprintf("image-%d", i)
	}
	access := auth.Access{Token: token, Keys: u.keys}
	e2b := e2bapi.New(e2bapi.Options{Engine: u.engine, Records: store,
		Authenticate: func(r *http.Request) (context.Context, error) { return u.server.Authenticator(access)(r) },
		View:         func(ctx context.Context) e2bapi.Engine { return e2bapi.EngineFor(u.server.View(ctx)) }})
	u.server = httpapi.NewLimited(httpapi.Options{Engine: fakeengine.Roles(wordy{u.engine}), Images: fakeengine.NewImages(names...),
		Keys: u.keys, Events: log, AuditFile: path, Ingress: e2b}, httpapi.Limits{Header: time.Minute, Body: time.Minute,
		Swallow: time.Minute, Waiting: 1000, Write: time.Minute, Memory: unreadMemory})
	u.address = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", u.address)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(u.server.Handler(access))
	server.Listener.Close()
	server.Listener = l
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.Start()
	t.Cleanup(server.Close)
	return u
}

// ask sends a request over a new connection, and returns the answer with its body unread.
func (u *unread) ask(ctx context.Context, key, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://forkd"+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-API-KEY", key)
	return (&http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", u.address)
	}}).RoundTrip(r)
}

// settled waits until the charge is zero.
func (u *unread) settled() {
	u.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); u.server.Charged() != 0; {
		if time.Now().After(deadline) {
			u.t.Fatalf("%d bytes stay charged", u.server.Charged())
		}
		time.Sleep(time.Millisecond) // elapses: connections end
	}
}

// Clients that do not read answers hold no more than the budget, with answers of any kind, and
// leave another tenant its share. When they have disconnected, the whole budget is free.
func TestUnreadAnswersOfEveryKindAreBounded(t *testing.T) {
	u := newUnread(t)
	at := "/v1/sandboxes/" + u.mine
	for _, c := range []struct {
		name, key, path string
		refused         bool // so many of them use up the share
	}{
		{"sandboxes", u.evil, "/v1/sandboxes", true},
		{"images", u.evil, "/v1/images", true},
		{"differences", u.evil, "/v1/snapshots/own/diff/own", true},
		{"receipts", u.evil, "/v1/receipts", true},
		{"flows", u.evil, at + "/network/flows", true},
		{"console", u.evil, at + "/console", false},
		{"console that is followed", u.evil, at + "/console?follow=true", false},
		{"events", u.evil, "/v1/events?after=0", false},
		{"lines of the audit log", token, "/v1/audit?limit=3000", true},
		{"all of the audit log", token, "/v1/audit?limit=0", false},
		{"E2B's sandboxes", u.evil, "/sandboxes", true},
		{"E2B's logs", u.evil, "/v2/sandboxes/" + u.mine + "/logs", true},
		{"E2B's old logs", u.evil, "/sandboxes/" + u.mine + "/logs", true},
	} {
		t.Run(c.name, func(t *testing.T) { u.leave(t, c.key, c.path, c.refused) })
	}
}

func (u *unread) leave(t *testing.T, key, path string, refused bool) {
	const n, slack = 50, 12 // MiB, of connections and of answers in progress
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := heapMiB()
	statuses := map[int]int{}
	for range n {
		resp, err := u.ask(ctx, key, path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		statuses[resp.StatusCode]++
		if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
			t.Error("a refusal does not say when to try again")
		}
	}
	held, charged := heapMiB()-before, u.server.Charged()
	t.Logf("%v; charged: %d KiB, heap: +%d MiB", statuses, charged>>10, held)
	if held > unreadMemory>>20+slack {
		t.Errorf("%d unread answers hold %d MiB", n, held)
	}
	if charged == 0 || charged > unreadMemory || statuses[200] == 0 || statuses[200]+statuses[503] != n ||
		refused != (statuses[503] > 0) {
		t.Errorf("statuses are %v, %d bytes are charged", statuses, charged)
	}
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/" + u.sandbox + "/console", "/v1/receipts",
		"/v2/sandboxes", "/v2/sandboxes/" + u.sandbox + "/logs"} {
		resp, err := u.ask(t.Context(), u.acme, path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("another tenant's %s: %s, %v", path, resp.Status, err)
		}
		resp.Body.Close()
	}
	cancel()
	u.settled()
}

// Requests that fail, panic or end early leave no charge.
func TestEndedRequestsLeaveNothingCharged(t *testing.T) {
	u := newUnread(t)
	var all sync.WaitGroup
	for i, path := range []string{"/v1/sandboxes/" + u.mine + "/memory", "/v1/sandboxes/nobody", "/v1/sandboxes/nobody/console",
		"/v2/sandboxes/nobody/logs", "/v2/sandboxes/" + u.mine + "/logs?limit=x", "/v1/audit", "/v1/events?after=x",
		"/v1/receipts?limit=0", "/v1/sandboxes", "/v1/snapshots/own/diff/own"} {
		for j := range 20 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+j)*time.Millisecond/2)
				defer cancel()
				resp, err := u.ask(ctx, u.evil, path)
				if err != nil {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			})
		}
	}
	all.Wait()
	u.settled()
}
