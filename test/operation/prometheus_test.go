package operation

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

const (
	monitoring = "../../packaging/monitoring"
	program    = "../../.cache/promtool/usr/bin/prometheus" // fetched by scripts/promtool.sh

	factor = 20               // of the rules' times
	maxFor = 30 * time.Second // limit of a rule's "for" after the division
)

// prometheus is a server that scrapes one daemon every two seconds.
type prometheus struct{ url string }

func startPrometheus(t *testing.T, daemon, token string) prometheus {
	t.Helper()
	dir := t.TempDir()
	rules, err := os.ReadFile(filepath.Join(monitoring, "forkd-alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(daemon)
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{
		"global":     map[string]any{"scrape_interval": "2s", "evaluation_interval": "1s"},
		"rule_files": []string{filepath.Join(dir, "rules.yaml")},
		"scrape_configs": []any{map[string]any{
			"job_name": "forkd", "scheme": target.Scheme, "scrape_timeout": "2s",
			"authorization":  map[string]any{"credentials": token},
			"static_configs": []any{map[string]any{"targets": []string{target.Host}}},
		}},
	}
	encoded, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "prometheus.yaml"), encoded)
	write(t, filepath.Join(dir, "rules.yaml"), faster(t, rules))

	address := freeAddress(t)
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	start(t, cmd, os.Stderr)
	p := prometheus{"http://" + address}
	eventually(t, 30*time.Second, "Prometheus is ready", func() bool {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

var (
	ruleFor   = regexp.MustCompile(`(?m)^(\s+for: )(\d+[smhd])$`)
	ruleRange = regexp.MustCompile(`\[(\d+[smhd])\]`)
)

// faster divides the times of alert rules by factor.
func faster(t *testing.T, rules []byte) []byte {
	t.Helper()
	divided := func(text []byte) time.Duration {
		d, err := time.ParseDuration(string(text))
		if err != nil {
			t.Fatal(err)
		}
		return max(d/factor, 5*time.Second)
	}
	rules = ruleFor.ReplaceAllFunc(rules, func(line []byte) []byte {
		m := ruleFor.FindSubmatch(line)
		return fmt.Appendf(nil, "%s%ds", m[1], int(min(divided(m[2]), maxFor).Seconds()))
	})
	return ruleRange.ReplaceAllFunc(rules, func(r []byte) []byte {
		return fmt.Appendf(nil, "[%ds]", int(divided(ruleRange.FindSubmatch(r)[1]).Seconds()))
	})
}

func TestRulesAreDivided(t *testing.T) {
	got := string(faster(t, []byte("        expr: changes(a[30m]) > 2\n        for: 2h\n        for: 5m\n        for: 10s\n")))
	if want := "        expr: changes(a[90s]) > 2\n        for: 30s\n        for: 15s\n        for: 5s\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// series is one series of an answer: its labels, and its values over time.
type series struct {
	Metric map[string]string
	Value  [2]any   // of an instant
	Values [][2]any // of a range
}

func (p prometheus) get(t *testing.T, path string, query url.Values) []series {
	t.Helper()
	resp, err := http.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []series }
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<20)).Decode(&answer); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if answer.Status != "success" {
		t.Errorf("%s: %s", query.Get("query"), answer.Error)
	}
	return answer.Data.Result
}

// alerts returns the names of the alerts in a state now, sorted.
func (p prometheus) alerts(t *testing.T, states string) []string {
	t.Helper()
	return names(p.get(t, "/api/v1/query", url.Values{"query": {`ALERTS{alertstate=~"` + states + `"}`}}))
}

// fired returns the names of the alerts that fired since a time, sorted. The query has whole seconds, and an alert may
// have ended within the first.
func (p prometheus) fired(t *testing.T, since time.Time) []string {
	t.Helper()
	return names(p.over(t, `ALERTS{alertstate="firing"}`, since.Add(time.Second), time.Second))
}

func (p prometheus) over(t *testing.T, query string, since time.Time, step time.Duration) []series {
	t.Helper()
	begin := since.Unix()
	end := max(begin, time.Now().Unix())
	return p.get(t, "/api/v1/query_range", url.Values{"query": {query}, "step": {fmt.Sprint(step.Seconds())},
		"start": {strconv.FormatInt(begin, 10)}, "end": {strconv.FormatInt(end, 10)}})
}

func names(all []series) []string {
	set := map[string]bool{}
	for _, s := range all {
		set[s.Metric["alertname"]] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// freeAddress returns an address of this host on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a program until the end of the test.
func start(t *testing.T, cmd *exec.Cmd, out io.Writer) {
	t.Helper()
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		_ = cmd.Wait()
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, limit time.Duration, what string, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !reached(); time.Sleep(500 * time.Millisecond) { // elapses: between two looks at a condition
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

var dashboardVariable = strings.NewReplacer("$__rate_interval", "30s", "$__range", "10m", "$instance", ".*", "$tenant", ".*")

// dashboardQueries returns the queries of all panels by the panels' titles.
func dashboardQueries(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(monitoring, "forkd-dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], dashboardVariable.Replace(target.Expr))
		}
	}
	return all
}
