package client_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

const traceParent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"

// parents is a server that refuses all requests, and notes their traceparent by path.
type parents struct {
	mu   sync.Mutex
	seen map[string][]string
}

func (p *parents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string][]string{}
	}
	p.seen[r.URL.Path] = r.Header["Traceparent"]
	w.WriteHeader(http.StatusNotFound)
}

func TestCallsContinueATrace(t *testing.T) {
	var p parents
	s := httptest.NewServer(&p)
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	calls := func(ctx context.Context) {
		_, _ = c.Version(ctx)
		_, _ = c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "py"})
		_, _ = c.DialPort(ctx, "sb-1", 80)
		_, _ = c.ExecStream(ctx, "sb-1", client.ExecOptions{Args: []string{"true"}, Stdout: io.Discard})
		_, _ = c.Console(ctx, "sb-1")
	}
	check := func(want []string) {
		t.Helper()
		if len(p.seen) < 5 {
			t.Errorf("only %d requests: %v", len(p.seen), p.seen)
		}
		for path, got := range p.seen {
			if !slices.Equal(got, want) {
				t.Errorf("%s has the traceparent %q, want %q", path, got, want)
			}
		}
		p.seen = nil
	}
	calls(t.Context())
	check(nil)
	traced := client.WithTraceParent(t.Context(), traceParent)
	calls(traced)
	check([]string{traceParent})
	for _, invalid := range []string{"", "x", traceParent + "\r\nEvil: 1", traceParent + "0", traceParent[:53] + "zz",
		"00-00000000000000000000000000000000-0123456789abcdef-01"} {
		calls(client.WithTraceParent(traced, invalid)) // it replaces the trace above
		check(nil)
	}
}

// TestTheDaemonContinuesTheTrace runs a program, and looks at the trace in its environment.
func TestTheDaemonContinuesTheTrace(t *testing.T) {
	d, id := portDaemon(t)
	c := d.client(t)
	ctx := client.WithTraceParent(t.Context(), traceParent)
	got, err := c.Exec(ctx, id, api.ExecRequest{Args: []string{"env"}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.Stdout, "TRACEPARENT="+traceParent+"\n") || strings.Contains(got.Stdout, "TRACESTATE") {
		t.Errorf("the program has no trace: %q", got.Stdout)
	}
	for state, want := range map[string]string{"a=1,b=2": "TRACESTATE=a=1,b=2\n", "x\nEvil: 1": "TRACEPARENT="} {
		got, err := c.Exec(client.WithTraceState(ctx, state), id, api.ExecRequest{Args: []string{"env"}})
		if err != nil || !strings.Contains(got.Stdout, want) {
			t.Errorf("with state %q: %q, %v", state, got.Stdout, err)
		}
	}
}
