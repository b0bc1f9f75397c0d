package httpapi_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// documented is a row of the table in docs/operate/metrics.md.
type documented struct {
	kind   string
	labels map[string]bound
}

// bound is a list of values, or their number.
type bound struct {
	values []string
	most   int
}

var (
	labelCell = regexp.MustCompile("^`([a-z]+)`: (.+)$")
	quotedOne = regexp.MustCompile("`([^`]+)`")
)

func metricsTable(t testing.TB) map[string]documented {
	t.Helper()
	page, err := os.ReadFile("../../../docs/operate/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]documented{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || !strings.HasPrefix(cells[1], " `forkd_") {
			continue
		}
		name := strings.Trim(cells[1], " `")
		row := documented{kind: strings.TrimSpace(cells[2]), labels: map[string]bound{}}
		if strings.TrimSpace(cells[5]) == "" {
			t.Errorf("%s has no meaning", name)
		}
		for part := range strings.SplitSeq(strings.TrimSpace(cells[3]), "; ") {
			if part == "" {
				continue
			}
			m := labelCell.FindStringSubmatch(part)
			if m == nil {
				t.Errorf("%s: labels %q", name, part)
				continue
			}
			var b bound
			if n, ok := strings.CutPrefix(m[2], "at most "); ok {
				if b.most, err = strconv.Atoi(n); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else {
				for _, v := range quotedOne.FindAllStringSubmatch(m[2], -1) {
					b.values = append(b.values, v[1])
				}
			}
			row.labels[m[1]] = b
		}
		if _, twice := table[name]; twice {
			t.Errorf("%s has two rows", name)
		}
		table[name] = row
	}
	return table
}

// exercise sends requests and events, some of them with values that have no label of their own.
func exercise(t *testing.T, b *bench) {
	t.Helper()
	b.engine.Limit = 5
	id := b.fork("2")[0].ID
	b.branch(id, `{"tag":"mid","n":1}`)
	b.branch(id, `{"tag":"full","mode":"full"}`)
	b.do("POST", "/v1/sandboxes/"+id+"/branch", `{"tag":"mid"}`)
	for range 2 {
		b.do("POST", "/v1/sandboxes/"+id+"/exec", `{"args":["echo"]}`)
	}
	b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":9}`)
	b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"nope"}`)
	b.do("PUT", "/v1/snapshots/py/pool", `{"size":2}`)
	for _, method := range []string{"DELETE", "PATCH", "BREW", "X"} {
		b.do(method, "/"+method+"/nowhere", "")
	}
	b.timings.Observe("unheard-of", time.Second, nil)
	b.timings.CountRefused("unheard-of", 1)
	tell := b.timings.CountEvents(func(string, string, map[string]string) {})
	tell("unheard-of", "", nil)
	tell(sandbox.EventOOM, "sb-1", map[string]string{"earlier": "4"})
}

func TestTheTableOfMetrics(t *testing.T) {
	b := newBench(t)
	exercise(t, b)
	table := metricsTable(t)
	all, err := b.server.GatherMetrics()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range all {
		if !strings.HasPrefix(m.Name, "forkd_") {
			if !strings.HasPrefix(m.Name, "go_") && !strings.HasPrefix(m.Name, "process_") {
				t.Errorf("%s has another prefix", m.Name)
			}
			continue
		}
		seen[m.Name] = true
		row, ok := table[m.Name]
		if !ok {
			t.Errorf("%s is not in the table", m.Name)
			continue
		}
		if row.kind != m.Type {
			t.Errorf("%s is a %s, the table has %q", m.Name, m.Type, row.kind)
		}
		compareLabels(t, m, row)
	}
	for name := range table {
		if !seen[name] {
			t.Errorf("%s is in the table, but the server does not have it", name)
		}
	}
	if n, most := len(b.server.Routes())+3, table["forkd_http_request_seconds"].labels["route"].most; n > most {
		t.Errorf("there are %d routes, the table has at most %d", n, most)
	}
	if n, most := len(api.Reasons())+2, table["forkd_failures_total"].labels["reason"].most; n > most {
		t.Errorf("there are %d reasons, the table has at most %d", n, most)
	}
}

func compareLabels(t *testing.T, m httpapi.Metric, row documented) {
	t.Helper()
	values := map[string]map[string]bool{}
	for _, series := range m.Labels {
		if got, want := slices.Sorted(maps.Keys(series)), slices.Sorted(maps.Keys(row.labels)); !slices.Equal(got, want) {
			t.Errorf("%s has the labels %q, the table has %q", m.Name, got, want)
			return
		}
		for label, v := range series {
			if values[label] == nil {
				values[label] = map[string]bool{}
			}
			values[label][v] = true
		}
	}
	for label, b := range row.labels {
		if b.most > 0 && len(values[label]) > b.most {
			t.Errorf("%s has %d values of %s, the table has at most %d", m.Name, len(values[label]), label, b.most)
		}
		for v := range values[label] {
			if b.most == 0 && !slices.Contains(b.values, v) {
				t.Errorf("%s has %s=%q, the table has %q", m.Name, label, v, b.values)
			}
		}
	}
}

func (b *bench) wantMetrics(want ...string) {
	b.t.Helper()
	text := b.do("GET", "/metrics", "").Body.String()
	for _, w := range want {
		if !strings.Contains(text, w) {
			name, _, _ := strings.Cut(w, "{")
			name, _, _ = strings.Cut(name, " ")
			var have []string
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, name) && !strings.Contains(line, "_bucket{") {
					have = append(have, line)
				}
			}
			b.t.Errorf("metrics have no %q; there are %q", w, have)
		}
	}
}

func TestWhatTheMetricsCount(t *testing.T) {
	b := newBench(t)
	exercise(t, b)
	b.wantMetrics(
		"forkd_fork_child_armed_seconds_count 5\n", "forkd_first_answer_seconds_count 1\n",
		`forkd_fork_children_total{result="failed"} 7`, `forkd_fork_failures_total{code="not_found"} 1`,
		`forkd_captures_total{mode="live",result="ok"} 1`, `forkd_captures_total{mode="live",result="failed"} 1`,
		`forkd_captures_total{mode="full",result="ok"} 1`, `forkd_capture_rounds_sum{mode="live"} 2`,
		`forkd_capture_bytes_total{guest="paused",mode="live"} 65536`,
		`forkd_failures_total{code="not_found",reason="snapshot_not_found"} 1`,
		`forkd_failures_total{code="not_found",reason="none"} 4`,
		`forkd_pool_shells{size="256MiB",state="wanted"} 2`, "forkd_pool_shells_ready 2\n",
		"forkd_oom_kills_total 5\n", `forkd_events_total{kind="sandbox.oom"} 1`, `forkd_events_total{kind="other"} 1`,
		`forkd_network_refused_flows_total{verdict="other"} 1`, `forkd_operations_total{op="other",result="ok"} 1`,
		`forkd_host_bytes{kind="free",resource="disk"} 4.294967296e+10`, `forkd_host_admits{level="all"} 1`,
		`forkd_host_pressure_ratio{resource="cpu"} 0.125`, `forkd_snapshots_by_status{status="ready"} 3`,
		`forkd_tenant_sandboxes{tenant="(operator)"} 5`, `forkd_tenant_requests_total{status="4xx",tenant="(operator)"}`,
		`method="other",route="none",status="404"`,
	)
}

// A streamed child may be used before its fork is complete. Its first answer counts once.
func TestFirstAnswers(t *testing.T) {
	b := newBench(t)
	r := httptest.NewRequest("POST", "/v1/sandboxes", strings.NewReader(`{"snapshot_tag":"py","n":2}`))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "application/x-ndjson")
	b.h.ServeHTTP(httptest.NewRecorder(), r)
	list := into[[]api.SandboxInfo](t, b.do("GET", "/v1/sandboxes", ""), 200)
	for range 2 {
		b.do("POST", "/v1/sandboxes/"+list[0].ID+"/eval", `{"code":"1"}`)
	}
	b.wantMetrics("forkd_first_answer_seconds_count 1\n")
	b.do("POST", "/v1/sandboxes/"+list[1].ID+"/exec", `{"args":["echo"]}`)
	b.wantMetrics("forkd_first_answer_seconds_count 2\n", "forkd_fork_child_ready_seconds_count 2\n")
}

// used is an engine whose sandboxes have used resources.
type used struct {
	fakeengine.Flat
	list []sandbox.Info
}

func (u *used) List() []sandbox.Info { return u.list }

func use(id, owner string, cpu time.Duration, in int64) sandbox.Info {
	return sandbox.Info{ID: id, Owner: owner, Status: sandbox.StatusRunning,
		Use: &sandbox.Use{CPU: cpu, DiskWritten: 2 * in, Net: sandbox.NetUse{In: in}}}
}

// Sums do not fall when a sandbox ends, gets a new VM, or has no numbers for a moment.
func TestUseIsAddedUp(t *testing.T) {
	b := newBench(t)
	u := &used{Flat: b.engine}
	b.h = httpapi.New(httpapi.Options{Engine: fakeengine.Roles(u), Timings: b.timings}).Handler(auth.Access{Token: token})
	for i, c := range []struct {
		list    []sandbox.Info
		cpu, in string
	}{
		{[]sandbox.Info{use("sb-1", "acme", 10*time.Second, 1000)}, "0", "0"}, // of an earlier daemon
		{[]sandbox.Info{use("sb-1", "acme", 12*time.Second, 1500)}, "2", "500"},
		{[]sandbox.Info{use("sb-1", "acme", 12*time.Second, 0), use("sb-2", "acme", time.Second, 7)}, "3", "507"},
		{[]sandbox.Info{{ID: "sb-1", Owner: "acme", Status: sandbox.StatusPaused}}, "3", "507"},
		{[]sandbox.Info{use("sb-1", "acme", 13*time.Second, 1501)}, "4", "508"},
		{[]sandbox.Info{use("sb-1", "acme", time.Second, 2)}, "5", "510"}, // a new VM
		{nil, "5", "510"},
	} {
		u.list = c.list
		t.Log("scrape", i)
		b.wantMetrics(`forkd_tenant_cpu_seconds_total{tenant="acme"} `+c.cpu+"\n",
			`forkd_network_bytes_total{direction="in"} `+c.in+"\n")
	}
}

// Many tenants share the last series, and the first ones keep theirs.
func TestTenantsInMetricsAreBounded(t *testing.T) {
	b := newBench(t)
	u := &used{Flat: b.engine}
	server := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(u), Timings: b.timings})
	b.h = server.Handler(auth.Access{Token: token})
	for i := range 300 {
		u.list = append(u.list, use(fmt.Sprint("sb-", i), fmt.Sprintf("t%03d", i), 0, 0))
	}
	for range 2 {
		b.wantMetrics(`forkd_tenant_sandboxes{tenant="t000"} 1`, `forkd_tenant_sandboxes{tenant="(other)"} 200`)
		slices.Reverse(u.list)
	}
	all, err := server.GatherMetrics()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Name == "forkd_tenant_sandboxes" && len(m.Labels) != 102 {
			t.Errorf("there are %d series", len(m.Labels))
		}
	}
}

// status is an ingress whose guest answers with any status.
type status struct{ code int }

func (status) Match(r *http.Request) bool                          { return r.Host == "sb" }
func (status) Sandbox(*http.Request) string                        { return "sb" }
func (s *status) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(s.code) }

// Guests choose statuses.
func TestStatusesOfGuestsAreBounded(t *testing.T) {
	b := newBench(t)
	guest := &status{}
	server := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(b.engine), Ingress: guest})
	h := server.Handler(auth.Access{Token: token})
	for guest.code = 200; guest.code < 1000; guest.code++ {
		r := httptest.NewRequestWithContext(context.Background(), "GET", "http://sb/", nil)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	all, err := server.GatherMetrics()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Name == "forkd_http_request_seconds" && len(m.Labels) != 5 { // 2xx to 5xx, and other
			t.Errorf("there are %d series", len(m.Labels))
		}
	}
}
