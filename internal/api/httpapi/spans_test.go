package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/tracing"
)

// receiver is a collector: it decodes what it gets with OpenTelemetry's own types.
type receiver struct {
	mu    sync.Mutex
	spans []*otlp.Span
	text  string // of all requests
}

func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	b, err := io.ReadAll(body)
	var req collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(b, &req)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text += req.String()
	for _, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
}

// traced is a bench with traces. The returned function exports all spans and returns the collector.
func traced(t testing.TB, sample float64) (*bench, func() *receiver) {
	t.Helper()
	c := &receiver{}
	b, flush := tracedTo(t, sample, c)
	return b, func() *receiver {
		flush()
		return c
	}
}

// tracedTo is a bench with traces for a collector. The returned function exports all spans.
func tracedTo(t testing.TB, sample float64, collector http.Handler) (*bench, func()) {
	t.Helper()
	to := httptest.NewServer(collector)
	t.Cleanup(to.Close)
	p, err := tracing.New(t.Context(), tracing.Config{Endpoint: to.URL, Sample: sample, Version: "1.2.3", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, func(o *httpapi.Options) { o.Traces = p })
	return b, func() {
		if err := p.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// send is do with more headers, as pairs.
func (b *bench) send(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w
}

// everything makes one of each operation with spans.
func everything(b *bench) {
	b.do("POST", "/v1/snapshots", `{"tag":"new","image":"python-numpy"}`)
	b.do("POST", "/v1/snapshots", `{"tag":"derived","from":"py","exec":["true"]}`)
	id := b.fork("40")[0].ID
	b.do("POST", "/v1/sandboxes/"+id+"/branch", `{"tag":"b","n":2}`)
	b.do("POST", "/v1/sandboxes/"+id+"/rollback", `{"snapshot_tag":"b"}`)
	b.do("POST", "/v1/sandboxes/"+id+"/pause", `{}`)
	b.do("POST", "/v1/sandboxes/"+id+"/resume", ``)
	b.do("POST", "/v1/sandboxes/"+id+"/pause", `{"filesystem_only":true}`)
}

// docs/operate/tracing.md has exactly the spans that a daemon exports, and their attributes.
func TestSpansAreThoseOfThePage(t *testing.T) {
	b, flush := traced(t, 1)
	everything(b)
	b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"missing"}`)
	b.do("GET", "/healthz", "")
	b.do("GET", "/metrics", "")
	b.do("GET", "/no/such/route", "")
	page, err := os.ReadFile("../../../docs/operate/tracing.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = regexp.MustCompile(`[a-z_]+\.[a-z_.]+`).FindAllString(row[2], -1)
	}
	seen := map[string]map[string]bool{}
	for _, s := range flush().spans {
		name := s.Name
		if s.Kind == otlp.Span_SPAN_KIND_SERVER {
			name = "METHOD ROUTE"
		}
		if strings.Contains(s.Name, "health") || strings.Contains(s.Name, "metrics") {
			t.Errorf("a probe has the span %s", s.Name)
		}
		if seen[name] == nil {
			seen[name] = map[string]bool{}
		}
		for _, a := range s.Attributes {
			seen[name][a.Key] = true
		}
		if s.EndTimeUnixNano < s.StartTimeUnixNano || s.StartTimeUnixNano == 0 {
			t.Errorf("%s is from %d to %d", s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano)
		}
	}
	for name, keys := range seen {
		for key := range keys {
			if !slices.Contains(documented[name], key) {
				t.Errorf("the page does not have %s of the span %s", key, name)
			}
		}
	}
	for name, keys := range documented {
		if seen[name] == nil {
			t.Errorf("the page has the span %s, which nothing made", name)
			continue
		}
		for _, key := range keys {
			if !seen[name][key] && key != string(tracing.ErrorType) {
				t.Errorf("the page has %s of the span %s, which nothing set", key, name)
			}
		}
	}
}

// A fork's spans are below its request's, which is below the caller's. Their number is bounded.
func TestSpansOfAFork(t *testing.T) {
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	b, flush := traced(t, 1)
	w := b.send("POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":40}`, "Traceparent", "00-"+trace+"-"+parent+"-01")
	id := into[[]api.SandboxInfo](t, w, 201)[0].ID
	out := into[api.ExecResponse](t, b.send("POST", "/v1/sandboxes/"+id+"/exec", `{"args":["env"]}`, "Traceparent", "00-"+trace+"-"+parent+"-01"), 200)
	by := map[string][]*otlp.Span{}
	for _, s := range flush().spans {
		if got := fmt.Sprintf("%x", s.TraceId); got != trace {
			t.Errorf("%s is in the trace %s", s.Name, got)
		}
		by[s.Name] = append(by[s.Name], s)
	}
	request, fork := by["POST /v1/sandboxes"], by[tracing.Fork]
	if len(request) != 1 || len(fork) != 1 || len(by[tracing.ForkChild]) != tracing.MaxChildren {
		t.Fatalf("%d requests, %d forks, %d children", len(request), len(fork), len(by[tracing.ForkChild]))
	}
	if got := fmt.Sprintf("%x", request[0].ParentSpanId); got != parent {
		t.Errorf("the request is below %s, want the caller's %s", got, parent)
	}
	if !bytes.Equal(fork[0].ParentSpanId, request[0].SpanId) {
		t.Error("the fork is not below the request")
	}
	for _, s := range slices.Concat(by[tracing.ForkChild], by[tracing.ForkArm], by[tracing.ForkReady]) {
		if !bytes.Equal(s.ParentSpanId, fork[0].SpanId) {
			t.Errorf("%s is not below the fork", s.Name)
		}
	}
	exec := by["POST /v1/sandboxes/{id}/exec"]
	if len(exec) != 1 || !strings.Contains(out.Stdout, fmt.Sprintf("TRACEPARENT=00-%s-%x-01\n", trace, exec[0].SpanId)) {
		t.Errorf("the program is not below the request: %s", out.Stdout)
	}
}

// The operator's part holds for callers' traces too, and a caller's decision against a trace holds.
func TestSampling(t *testing.T) {
	for name, c := range map[string]struct {
		sample  float64
		flags   string
		want    bool
		without bool
	}{
		"none":                        {sample: 0, flags: "01"},
		"all":                         {sample: 1, flags: "01", want: true},
		"all, without a caller":       {sample: 1, without: true, want: true},
		"none, without a caller":      {sample: 0, without: true},
		"all, but the caller's is no": {sample: 1, flags: "00"},
	} {
		t.Run(name, func(t *testing.T) {
			b, flush := traced(t, c.sample)
			var headers []string
			if !c.without {
				headers = []string{"Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-" + c.flags}
			}
			b.send("POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`, headers...)
			if got := len(flush().spans) > 0; got != c.want {
				t.Errorf("exported: %v, want %v", got, c.want)
			}
		})
	}
}

// Nothing that a user sends as content is in a trace.
func TestTracesHaveNoSecrets(t *testing.T) {
	const secret = "PLANTED-7f3a"
	b, flush := traced(t, 1)
	everything(b)
	w := b.send("POST", "/v1/sandboxes", `{"snapshot_tag":"py","env":{"KEY":"`+secret+`"}}`, "X-Key", secret, "Cookie", "a="+secret)
	id := into[[]api.SandboxInfo](t, w, 201)[0].ID
	for _, call := range [][3]string{
		{"POST", "/exec", `{"args":["echo","` + secret + `"],"env":{"A":"` + secret + `"},"stdin":"` + secret + `"}`},
		{"POST", "/eval", `{"code":"raise Exception('` + secret + `')"}`},
		{"PUT", "/files?path=/tmp/" + secret, secret},
		{"GET", "/files?path=/tmp/" + secret, ""},
	} {
		b.send(call[0], "/v1/sandboxes/"+id+call[1], call[2])
	}
	b.send("POST", "/v1/snapshots", `{"tag":"w","image":"python-numpy","warm":"`+secret+`"}`)
	b.send("GET", "/v1/sandboxes?token="+secret, "")
	b.send("GET", "/v1/"+secret, "", "Authorization", "Bearer "+secret)
	c := flush()
	if strings.Contains(c.text, secret) || strings.Contains(c.text, token) {
		t.Errorf("a trace has a secret: %s", c.text)
	}
	if len(c.spans) < 20 {
		t.Errorf("only %d spans", len(c.spans))
	}
}

// A collector that accepts connections and never answers delays neither requests nor the end.
func TestACollectorThatHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := tracing.New(t.Context(), tracing.Config{Endpoint: "http://" + l.Addr().String(), Sample: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, func(o *httpapi.Options) { o.Traces = p })
	began := time.Now()
	const requests = 6000 // more than the queue holds
	for range requests {
		b.do("GET", "/v1/sandboxes", "")
	}
	t.Logf("%d requests took %s", requests, time.Since(began))
	if ended, exported, _ := p.Counts(); ended != requests || exported != 0 {
		t.Errorf("%d spans ended, %d were exported", ended, exported)
	}
	if text := b.do("GET", "/metrics", "").Body.String(); !strings.Contains(text, fmt.Sprintf(`forkd_trace_spans_total{result="ended"} %d`, requests)) {
		t.Error("the metric does not count the spans")
	}
}

// The steps that a VMM and a guest report are below the engine's step, and within its time.
func TestReportedStepsAreWithinTheirParents(t *testing.T) {
	b, flush := traced(t, 1)
	everything(b)
	all := flush().spans
	byID := map[string]*otlp.Span{}
	for _, s := range all {
		byID[string(s.SpanId)] = s
	}
	above := map[string]map[string]bool{"vmm": {}, "guest": {}}
	for _, s := range all {
		by, _, reported := strings.Cut(s.Name, ".")
		if above[by] == nil && by != "step" || !reported {
			continue
		}
		p := byID[string(s.ParentSpanId)]
		if p == nil {
			t.Fatalf("%s has no parent", s.Name)
		}
		if s.Name != tracing.Step+"fork" && (s.StartTimeUnixNano < p.StartTimeUnixNano || s.EndTimeUnixNano > p.EndTimeUnixNano) &&
			p.Name != tracing.Create && p.Name != tracing.Derive { // whose steps the fake engine makes up
			t.Errorf("%s is from %d to %d, outside of %s: %d to %d", s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano,
				p.Name, p.StartTimeUnixNano, p.EndTimeUnixNano)
		}
		if by == "step" {
			continue
		}
		above[by][p.Name] = true
		var source string
		for _, a := range s.Attributes {
			if a.Key == string(tracing.ReportedBy) {
				source = a.Value.GetStringValue()
			}
		}
		if source != by {
			t.Errorf("%s is reported by %q", s.Name, source)
		}
		if strings.ContainsAny(s.Name, "\x1b[") {
			t.Errorf("a guest named the span %q", s.Name)
		}
	}
	for by, want := range map[string][]string{"vmm": {"step.capture", "step.restore"},
		"guest": {"step.capture", "step.identity", "step.quiesce"}} {
		if got := slices.Sorted(maps.Keys(above[by])); !slices.Equal(got, want) {
			t.Errorf("%s.* are below %q, want %q", by, got, want)
		}
	}
}

// Code of eval has the request's span as its parent. Without a trace it has none.
func TestEvalHasTheSpanOfItsRequest(t *testing.T) {
	const trace, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	result := func(w *httptest.ResponseRecorder) string {
		var got api.EvalResponse
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Result == nil {
			t.Fatalf("answer %s: %v", w.Body, err)
		}
		return *got.Result
	}
	b, flush := traced(t, 1)
	path := "/v1/sandboxes/" + b.fork("1")[0].ID + "/eval"
	got := result(b.send("POST", path, `{"code":"trace"}`, "traceparent", "00-"+trace+"-"+caller+"-01", "tracestate", "a=b"))
	var want string
	for _, s := range flush().spans {
		if strings.HasSuffix(s.Name, "/eval") {
			want = fmt.Sprintf("00-%s-%x-01|a=b", trace, s.SpanId)
		}
	}
	if got != want {
		t.Errorf("the code has %q, want %q", got, want)
	}
	b = newBenchWith(t, func(*httpapi.Options) {})
	path = "/v1/sandboxes/" + b.fork("1")[0].ID + "/eval"
	if got := result(b.send("POST", path, `{"code":"trace"}`)); got != "|" {
		t.Errorf("without a trace the code has %q", got)
	}
}

// BenchmarkTracedFork measures the cost of spans: a fork of 40 children over the fake engine, which reports as many
// steps as a real one, without a tracer, with an unsampled trace and with an exported one.
func BenchmarkTracedFork(b *testing.B) {
	discard := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	unsampled, _ := tracedTo(b, 0, discard)
	exported, _ := tracedTo(b, 1, discard)
	for _, c := range []struct {
		name string
		*bench
	}{{"off", newBench(b)}, {"unsampled", unsampled}, {"exported", exported}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := c.send("POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":40}`)
				if w.Code != http.StatusCreated {
					b.Fatal(w.Body)
				}
				b.StopTimer()
				var list []api.SandboxInfo
				if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
					b.Fatal(err)
				}
				for _, sb := range list {
					c.send("DELETE", "/v1/sandboxes/"+sb.ID, "")
				}
				b.StartTimer()
			}
		})
	}
}
