package httpapi_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const monitoring = "../../../packaging/monitoring/"

// parsed reads a file of packaging/monitoring.
func parsed[T any](t *testing.T, name string, unmarshal func([]byte, any) error) T {
	t.Helper()
	var v T
	b, err := os.ReadFile(monitoring + name)
	if err == nil {
		err = unmarshal(b, &v)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

func decodeYAML(b []byte, v any) error { return yaml.Unmarshal(b, v) }

type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

type alertFile struct{ Groups []struct{ Rules []alertRule } }

func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var all []alertRule
	for _, g := range parsed[alertFile](t, "forkd-alerts.yaml", decodeYAML).Groups {
		all = append(all, g.Rules...)
	}
	return all
}

type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  source
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		RefID, Expr string
		Datasource  source
	}
}

type source struct{ Type, UID string }

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	return parsed[dashboard](t, "forkd-dashboard.json", json.Unmarshal)
}

var (
	promString   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	promLabels   = regexp.MustCompile(`\{[^{}]*\}`)
	promGrouping = regexp.MustCompile(`\b(?:by|without|ignoring|on|group_left|group_right)\s*\([^()]*\)`)
	promRange    = regexp.MustCompile(`\[[^\]]*\]`)
	promName     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*(\s*\()?`)
	promLabel    = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	promSelector = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^{}]*\})`)
)

// metricsOf returns the names of the metrics in a query. Functions have a parenthesis behind their
// names. The words are operators.
func metricsOf(query string) []string {
	s := promString.ReplaceAllString(query, `""`)
	for _, r := range []*regexp.Regexp{promLabels, promGrouping, promRange} {
		s = r.ReplaceAllString(s, " ")
	}
	var all []string
	for _, name := range promName.FindAllString(s, -1) {
		if !strings.HasSuffix(name, "(") && !slices.Contains([]string{"and", "or", "unless", "bool", "offset"}, name) {
			all = append(all, name)
		}
	}
	return all
}

func TestMetricsOfQueries(t *testing.T) {
	for query, want := range map[string]string{
		`a_b`: "a_b", `sum by (x) (rate(a{l="b(c"}[5m])) / ignoring(y) c > 0.5`: "a c",
		`a and b unless c{x=~"d|e", y!="f"}`: "a b c", `histogram_quantile(0.9, sum by (le) (rate(h_bucket[$__rate_interval])))`: "h_bucket",
	} {
		if got := strings.Join(metricsOf(query), " "); got != want {
			t.Errorf("%s has the metrics %q, want %q", query, got, want)
		}
	}
}

// queryCheck compares queries with the table and with a server's other metrics.
type queryCheck struct {
	table map[string]documented
	extra map[string]bool
	used  map[string]bool
}

func newQueryCheck(t *testing.T) *queryCheck {
	t.Helper()
	q := &queryCheck{table: metricsTable(t), extra: map[string]bool{"up": true}, used: map[string]bool{}}
	all, err := newBench(t).server.GatherMetrics()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		q.extra[m.Name] = !strings.HasPrefix(m.Name, "forkd_")
	}
	return q
}

func (q *queryCheck) row(name string) (of string, row documented, ok bool) {
	if row, ok = q.table[name]; ok {
		return name, row, row.kind != "histogram"
	}
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if of, is := strings.CutSuffix(name, suffix); is && q.table[of].kind == "histogram" {
			return of, q.table[of], true
		}
	}
	return name, row, false
}

func (q *queryCheck) check(t *testing.T, where, query string) {
	t.Helper()
	names := metricsOf(query)
	if len(names) == 0 {
		t.Errorf("%s: %q has no metric", where, query)
	}
	for _, name := range names {
		of, _, ok := q.row(name)
		if q.used[of] = true; !ok && !q.extra[name] {
			t.Errorf("%s: %s is not in docs/operate/metrics.md, or is a whole histogram", where, name)
		}
	}
	for _, m := range promSelector.FindAllStringSubmatch(query, -1) {
		_, row, ok := q.row(m[1])
		if !ok {
			continue
		}
		for _, l := range promLabel.FindAllStringSubmatch(promString.ReplaceAllString(m[2], `""`), -1) {
			if _, has := row.labels[l[1]]; !has && l[1] != "job" && l[1] != "instance" && l[1] != "le" {
				t.Errorf("%s: %s has no label %s", where, m[1], l[1])
			}
		}
		q.checkValues(t, where, m[1], m[2], row)
	}
}

var promValues = regexp.MustCompile(`([a-z_]+)\s*(?:=~|=)\s*"([^"]*)"`)

// checkValues finds values that a label never has.
func (q *queryCheck) checkValues(t *testing.T, where, name, selector string, row documented) {
	t.Helper()
	for _, l := range promValues.FindAllStringSubmatch(selector, -1) {
		b := row.labels[l[1]]
		for v := range strings.SplitSeq(l[2], "|") {
			if len(b.values) > 0 && !slices.Contains(b.values, v) {
				t.Errorf("%s: %s has no %s=%q", where, name, l[1], v)
			}
		}
	}
}

func TestAlertsUseTheTable(t *testing.T) {
	q := newQueryCheck(t)
	tests, err := os.ReadFile(monitoring + "forkd-alerts-test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range alertRules(t) {
		q.check(t, r.Alert, r.Expr)
		if !strings.HasPrefix(r.Alert, "Forkd") || seen[r.Alert] {
			t.Errorf("%q is no name, or there are two", r.Alert)
		}
		seen[r.Alert] = true
		if r.Annotations["summary"] == "" || len(r.Annotations["runbook"]) < 40 {
			t.Errorf("%s has the annotations %q", r.Alert, r.Annotations)
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has severity %q", r.Alert, s)
		}
		if !strings.Contains(string(tests), fmt.Sprintf("alertname=%q", r.Alert)) {
			t.Errorf("no test in forkd-alerts-test.yaml has %s firing", r.Alert)
		}
	}
	if len(seen) < 15 {
		t.Errorf("there are %d alerts", len(seen))
	}
}

func TestTheDashboardUsesTheTable(t *testing.T) {
	q, d := newQueryCheck(t), readDashboard(t)
	if v := d.Templating.List; len(v) != 1 || v[0].Type != "datasource" || v[0].Query != "prometheus" || d.SchemaVersion < 38 {
		t.Errorf("the variables are %+v, the schema is %d", v, d.SchemaVersion)
	}
	want := source{"prometheus", "${" + d.Templating.List[0].Name + "}"}
	var rows []string
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the ID %d", p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := cells[at]; other != "" || at[0] >= 24 {
					t.Fatalf("%q is over %q, or too wide", p.Title, other)
				}
				cells[at] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Datasource != want || len(p.Targets) == 0 {
			t.Errorf("%q has the data source %v and %d queries", p.Title, p.Datasource, len(p.Targets))
		}
		for _, target := range p.Targets {
			if target.Datasource != want {
				t.Errorf("%q has the data source %v", p.Title, target.Datasource)
			}
			q.check(t, p.Title, target.Expr)
		}
	}
	if got := strings.Join(rows, ", "); got != "Forks, Sandboxes, Captures, Host and memory, Store, API, Network, Tenants" {
		t.Errorf("the rows are %s", got)
	}
	for name := range q.table {
		if !q.used[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// promtool runs Debian's promtool in the folder of the alert rules.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		path, err = filepath.Abs("../../../.cache/promtool/usr/bin/promtool")
	}
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Skip("promtool is missing: scripts/promtool.sh fetches it")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir, cmd.Stdin = monitoring, strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Names, units and help texts follow Prometheus' conventions.
func TestMetricsAsPrometheusReadsThem(t *testing.T) {
	b := newBench(t)
	exercise(t, b)
	promtool(t, b.do("GET", "/metrics", "").Body.String(), "check", "metrics")
}

func TestAlertRulesAsPrometheusReadsThem(t *testing.T) {
	promtool(t, "", "check", "rules", "forkd-alerts.yaml")
}

// The tests have a healthy host without alerts, and a host with each fault.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool(t, "", "test", "rules", "forkd-alerts-test.yaml")
}

// Prometheus parses the dashboard's queries as recording rules.
func TestQueriesOfTheDashboardAsPrometheusReadsThem(t *testing.T) {
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			rules = append(rules, rule{fmt.Sprintf("panel%d:%s", p.ID, target.RefID),
				strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")})
		}
	}
	b, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	file := filepath.Join(t.TempDir(), "queries.yaml") // JSON is YAML
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil || len(rules) < 40 {
		t.Fatalf("%d queries, %v", len(rules), err)
	}
	promtool(t, "", "check", "rules", file)
}
