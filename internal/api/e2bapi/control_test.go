package e2bapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

func TestASandboxFromItsMakingToItsEnd(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base","metadata":{"a b":"c&d"},"envVars":{"X":"1"},"new":{"field":1}}`)
	if !strings.HasPrefix(s.SandboxID, "sb") || strings.Contains(s.SandboxID, "-") || len(s.EnvdAccessToken) != 64 ||
		s.TemplateID != "base" || s.EnvdVersion != "0.6.13" || s.ClientID == "" || s.TrafficAccessToken != nil ||
		s.Domain == nil || !strings.HasPrefix(*s.Domain, "forkd.localhost:") {
		t.Errorf("got %+v", s)
	}
	path := "/sandboxes/" + s.SandboxID
	detail := want[map[string]any](t, b.do("GET", path, ""), 200)
	for _, field := range []string{"templateID", "sandboxID", "clientID", "startedAt", "endAt", "cpuCount", "memoryMB",
		"diskSizeMB", "state", "envdVersion", "lifecycle", "envdAccessToken", "metadata"} {
		if detail[field] == nil {
			t.Errorf("%s is missing", field)
		}
	}
	if detail["state"] != "running" || detail["envdAccessToken"] != s.EnvdAccessToken {
		t.Errorf("got %v", detail)
	}
	if a := b.do("POST", path+"/timeout", `{"timeout":60}`); a.StatusCode != 204 || a.body != "" {
		t.Errorf("timeout: %s %q", a.Status, a.body)
	}
	again := want[created](t, b.do("POST", "/v2/sandboxes/"+s.SandboxID+"/connect", `{"timeout":30}`), 200)
	if again.EnvdAccessToken != s.EnvdAccessToken {
		t.Error("to connect gives another token")
	}
	if end := b.record(s).End; !end.Equal(b.clock.now().Add(time.Minute)) {
		t.Errorf("to connect shortened the time to %s", end)
	}
	want[created](t, b.do("POST", "/sandboxes/"+s.SandboxID+"-6532622b/connect", `{"timeout":600}`), 200)
	if end := b.record(s).End; !end.Equal(b.clock.now().Add(10 * time.Minute)) {
		t.Errorf("to connect extended the time to %s", end)
	}
	want[any](t, b.do("DELETE", path, ""), 204)
	wantError(t, b.do("DELETE", path, ""), 404)
	wantError(t, b.do("GET", path, ""), 404)
	wantError(t, b.do("POST", path+"/connect", `{"timeout":1}`), 404)
	if _, ok := b.store.Get(sandbox.CanonicalID(s.SandboxID)); ok {
		t.Error("its record is left")
	}
}

func TestWhatACreationRefuses(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		body   string
		status int
		says   string
	}{
		{`{}`, 400, "templateID"}, {`{"templateID":`, 400, "parsing"}, {`[]`, 400, "parsing"},
		{`{"templateID":"base","timeout":0}`, 400, "timeout"}, {`{"templateID":"base","timeout":-1}`, 400, "timeout"},
		{`{"templateID":"base","timeout":99999999999}`, 400, "timeout"}, {`{"templateID":"none"}`, 404, "not found"},
		{`{"templateID":"../x"}`, 400, "template"}, {`{"templateID":"base","autoPauseMemory":false}`, 400, "autoPause"},
		{`{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`, 400, "autoResume"},
		{`{"templateID":"base","network":{"allowOut":["a.example"]}}`, 400, "denyOut"},
		{`{"templateID":"base","network":{"denyOut":["a.example"]}}`, 400, "denyOut"},
		{`{"templateID":"base","network":{"egressProxy":{"address":"a.example:1","username":"u","password":"\n"}}}`, 400, "password"},
		{`{"templateID":"base","network":{"egressProxy":{"address":"a.example:1","tls":{}}}}`, 501, "egressProxy.tls"},
		{`{"templateID":"base","network":{"egressProxy":{"username":"u"}}}`, 400, "address"},
		{`{"templateID":"base","network":{"httpsPorts":[49983]}}`, 400, "httpsPorts"},
		{`{"templateID":"base","network":{"httpsPorts":[70000]}}`, 400, "httpsPorts"},
		{`{"templateID":"base","volumeMounts":[{"name":"a"}]}`, 501, "volumes"},
		{`{"templateID":"base","envVars":{"a=b":"c"}}`, 400, "envVars"}, {`{"templateID":"broken"}`, 500, "boot"},
		{`{"templateID":"base","metadata":{"a":"` + strings.Repeat("x", 1<<20) + `"}}`, 413, "bytes"},
	} {
		wantError(t, b.do("POST", "/v2/sandboxes", c.body), c.status, c.says)
	}
	if n := len(b.engine.List()) + len(b.store.All()); n != 0 {
		t.Errorf("%d are left", n)
	}
	for _, key := range []string{"", "wrong"} {
		wantError(t, b.do("POST", "/sandboxes", `{"templateID":"base"}`, "X-API-KEY", key), 401)
	}
}

func TestVersionsOfCreate(t *testing.T) {
	b := newBench(t)
	open := want[created](t, b.do("POST", "/sandboxes", `{"templateID":"e2bdev/base","secure":false}`), 201)
	if open.EnvdAccessToken != "" || !b.record(open).End.Equal(b.clock.now().Add(15*time.Second)) {
		t.Errorf("version 1: %+v", open)
	}
	secured := want[created](t, b.do("POST", "/sandboxes", `{"templateID":"base","secure":true}`), 201)
	v2 := b.create(`{"templateID":"base:default","secure":false}`)
	if secured.EnvdAccessToken == "" || v2.EnvdAccessToken == "" ||
		!b.record(v2).End.Equal(b.clock.now().Add(5*time.Minute)) {
		t.Errorf("secured: %+v, version 2: %+v", secured, v2)
	}
	wantError(t, b.do("POST", "/sandboxes/"+v2.SandboxID+"/connect", `{}`), 400)
	want[created](t, b.do("POST", "/v2/sandboxes/"+v2.SandboxID+"/connect", ``), 200)
}

func TestARepeatedCreation(t *testing.T) {
	b := newBench(t)
	post := func(body, key string) answer {
		return b.do("POST", "/v2/sandboxes", body, "Idempotency-Key", key)
	}
	first := want[created](t, post(`{"templateID":"base"}`, "k1"), 201)
	if again := want[created](t, post(`{"templateID":"base"}`, "k1"), 201); again.SandboxID != first.SandboxID {
		t.Error("the second time it is another")
	}
	wantError(t, post(`{"templateID":"base","timeout":5}`, "k1"), 422, "idempotency_request_mismatch")
	wantError(t, post(`{"templateID":"base"}`, "K 1"), 400)
	wantError(t, post(`{"templateID":"none"}`, "k2"), 404)
	wantError(t, post(`{"templateID":"none","timeout":5}`, "k2"), 404)
}

func TestPauseAndResume(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base"}`)
	path := "/sandboxes/" + s.SandboxID
	want[any](t, b.do("POST", path+"/pause", ``), 204)
	wantError(t, b.do("POST", path+"/pause", `{}`), 409)
	if d := want[map[string]any](t, b.do("GET", path, ""), 200); d["state"] != "paused" || d["pauseMode"] != "full" {
		t.Errorf("got %v", d)
	}
	gone := fmt.Sprintf(`{"sandboxId":"%s","message":"The sandbox was not found","code":502}`+"\n", s.SandboxID)
	if a := b.envd(s, "GET", "/health", ""); a.StatusCode != 502 || a.body != gone {
		t.Errorf("paused: %s %s", a.Status, a.body)
	}
	wantError(t, b.do("POST", path+"/timeout", `{"timeout":5}`), 404)
	wantError(t, b.do("POST", path+"/snapshots", `{}`), 409)
	wantError(t, b.do("POST", path+"/fork", `{}`), 409)
	again := want[created](t, b.do("POST", path+"/connect", `{"timeout":5}`), 201)
	if again.EnvdAccessToken != s.EnvdAccessToken {
		t.Error("it has another token")
	}
	if a := b.envd(s, "GET", "/health", ""); a.StatusCode != 204 {
		t.Errorf("resumed: %s %s", a.Status, a.body)
	}
	wantError(t, b.do("POST", path+"/resume", `{}`), 409)
	want[any](t, b.do("POST", path+"/pause", `{"memory":true}`), 204)
	want[created](t, b.do("POST", path+"/resume", `{"timeout":5,"autoPause":true}`), 201)
	want[any](t, b.do("POST", path+"/pause", `{"memory":false}`), 204)
	if d := want[map[string]any](t, b.do("GET", path, ""), 200); d["state"] != "paused" || d["pauseMode"] != "filesystem" {
		t.Errorf("without its memory: %v", d)
	}
	again = want[created](t, b.do("POST", path+"/resume", `{"timeout":5,"autoPause":true}`), 201)
	if again.EnvdAccessToken != s.EnvdAccessToken {
		t.Error("booted, it has another token")
	}
	want[any](t, b.do("POST", path+"/timeout", `{"timeout":0}`), 204)
	if d := want[map[string]any](t, b.do("GET", path, ""), 200); d["state"] != "paused" {
		t.Errorf("at its end it is %v", d["state"])
	}
}

// At its timeout a sandbox can be paused without its memory, and so can its forks.
func TestATimeoutThatKeepsTheDiskAlone(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":false}}`)
	path := "/sandboxes/" + s.SandboxID
	fork := want[[]struct{ Sandbox created }](t, b.do("POST", path+"/fork", `{}`), 201)[0].Sandbox
	for _, s := range []created{s, fork} {
		if l := b.engine.Lives[sandbox.CanonicalID(s.SandboxID)]; !l.Pause || !l.FilesystemOnly || l.End.IsZero() {
			t.Errorf("its life is %+v", l)
		}
	}
	want[any](t, b.do("POST", path+"/timeout", `{"timeout":0}`), 204)
	d := want[map[string]any](t, b.do("GET", path, ""), 200)
	if d["state"] != "paused" || d["pauseMode"] != "filesystem" || d["lifecycle"].(map[string]any)["onTimeout"] != "pause" {
		t.Errorf("at its end: %v", d)
	}
	// It boots, with or without a request for it.
	want[created](t, b.do("POST", "/v2/sandboxes/"+s.SandboxID+"/connect", `{"memory":false}`), 201)
	want[any](t, b.do("POST", path+"/pause", ``), 204)
	wantError(t, b.do("POST", "/v2/sandboxes/"+s.SandboxID+"/connect", `{"memory":false}`), 501, "without memory")
	whole := b.create(`{"templateID":"base","autoPause":true,"autoPauseMemory":true}`)
	if l := b.engine.Lives[sandbox.CanonicalID(whole.SandboxID)]; !l.Pause || l.FilesystemOnly {
		t.Errorf("with its memory: %+v", l)
	}
}

func TestTrafficResumes(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}`)
	want[any](t, b.do("POST", "/sandboxes/"+s.SandboxID+"/pause", ``), 204)
	if a := b.envd(s, "GET", "/health", ""); a.StatusCode != 204 {
		t.Errorf("got %s %s", a.Status, a.body)
	}
}

// TestAStrangerDoesNotWake sends requests without the token to a paused sandbox that traffic
// resumes.
func TestAStrangerDoesNotWake(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base","autoPause":true,"autoResume":{"enabled":true},"network":{"allowPublicTraffic":false}}`)
	id := sandbox.CanonicalID(s.SandboxID)
	want[any](t, b.do("POST", "/sandboxes/"+s.SandboxID+"/pause", ``), 204)
	stranger := s
	stranger.EnvdAccessToken = ""
	for path, code := range map[string]int{"/envs": 401, "/files?path=/etc/passwd": 401, "/health": 502} {
		if a := b.envd(stranger, "GET", path, ""); a.StatusCode != code {
			t.Errorf("%s: got %s %s, want %d", path, a.Status, a.body, code)
		}
	}
	if a := b.envd(stranger, "OPTIONS", "/files", "", "Access-Control-Request-Headers", "X-Evil"); a.StatusCode != 204 ||
		strings.Contains(a.Header.Get("Access-Control-Allow-Headers"), "X-Evil") || a.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("a preflight: %s %v", a.Status, a.Header)
	}
	a := b.do("GET", "/", "", "E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", "3000")
	if a.StatusCode < 400 {
		t.Errorf("a private port: %s", a.Status)
	}
	if info, err := b.engine.Get(id); err != nil || info.Status != sandbox.StatusPaused {
		t.Errorf("a stranger woke it: %+v, %v", info, err)
	}
	if a := b.envd(s, "GET", "/envs", ""); a.StatusCode != 200 {
		t.Errorf("its owner: %s %s", a.Status, a.body)
	}
}

func TestLists(t *testing.T) {
	b := newBench(t)
	var ids []string
	for i := range 3 {
		b.clock.pass(time.Second)
		s := b.create(fmt.Sprintf(`{"templateID":"base","metadata":{"a b":"c&d","n":"%d"}}`, i))
		ids = append(ids, s.SandboxID)
	}
	want[any](t, b.do("POST", "/sandboxes/"+ids[0]+"/pause", ``), 204)
	get := func(query string) (string, answer) {
		a := b.do("GET", "/v2/sandboxes?"+query, "")
		var got []string
		for _, s := range want[[]struct{ SandboxID string }](t, a, 200) {
			for i, id := range ids {
				if id == s.SandboxID {
					got = append(got, fmt.Sprint(i))
				}
			}
		}
		return strings.Join(got, ""), a
	}
	for query, expect := range map[string]string{
		"": "210", "order=asc": "012", "state=running": "21", "state=paused": "0", "state=running%2Cpaused": "210",
		"state=running&state=paused": "210", "metadata=a%252520b%3Dc%252526d": "210",
		"metadata=n%3D1": "1", "metadata=n%3D1%26x%3Dy": "", "template=base": "210", "template=none": "", "template=..%2Fx": "",
		"limit=2": "21",
		"startedAfter=" + url.QueryEscape(b.clock.now().UTC().Format(time.RFC3339Nano)): "2",
	} {
		if got, _ := get(query); got != expect {
			t.Errorf("%s: %s, want %s", query, got, expect)
		}
	}
	_, first := get("limit=2")
	rest, last := get("limit=2&nextToken=" + first.Header.Get("X-Next-Token"))
	if rest != "0" || last.Header.Get("X-Next-Token") != "" || first.Header.Get("X-Total-Running") != "2" {
		t.Errorf("second page: %s, %v, %v", rest, first.Header, last.Header)
	}
	for _, query := range []string{"limit=0", "limit=101", "state=x", "order=x", "nextToken=x", "startedAfter=x", "metadata=x"} {
		wantError(t, b.do("GET", "/v2/sandboxes?"+query, ""), 400)
	}
	if old := want[[]any](t, b.do("GET", "/sandboxes", ""), 200); len(old) != 2 {
		t.Errorf("the old list has %d", len(old))
	}
}

func TestSnapshots(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base","envVars":{"X":"1"}}`)
	type snap struct {
		SnapshotID string
		Names      []string
	}
	path := "/sandboxes/" + s.SandboxID + "/snapshots"
	bare := want[snap](t, b.do("POST", path, ``), 201)
	named := want[snap](t, b.do("POST", path, `{"name":"mine:v1"}`), 201)
	if bare.Names == nil || len(bare.Names) != 0 || named.SnapshotID != "local/mine:v1" || named.Names[0] != "local/mine" {
		t.Errorf("got %+v, %+v", bare, named)
	}
	wantError(t, b.do("POST", path, `{"name":"mine:v1"}`), 409)
	wantError(t, b.do("POST", path, `{"name":"a b"}`), 400)
	wantError(t, b.do("POST", path, `{"memory":false}`), 400)
	for query, n := range map[string]int{"": 2, "sandboxID=" + s.SandboxID: 2, "sandboxID=sb000000099999": 0, "name=mine": 1,
		"name=mine%3Av1": 1, "name=local%2Fmine": 1, "name=none": 0, "limit=1": 1} {
		if all := want[[]snap](t, b.do("GET", "/snapshots?"+query, ""), 200); len(all) != n {
			t.Errorf("%s: %v", query, all)
		}
	}
	child := b.create(`{"templateID":"` + named.SnapshotID + `"}`)
	escaped := "/templates/" + url.PathEscape(named.SnapshotID)
	wantError(t, b.do("DELETE", escaped, ""), 400)
	want[any](t, b.do("DELETE", "/sandboxes/"+child.SandboxID, ""), 204)
	want[any](t, b.do("DELETE", escaped, ""), 204)
	wantError(t, b.do("DELETE", escaped, ""), 404)
}

func TestForks(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base","envVars":{"X":"1"},"metadata":{"m":"1"}}`)
	path := "/sandboxes/" + s.SandboxID + "/fork"
	forks := want[[]struct {
		Sandbox *created
		Error   *errorBody
	}](t, b.do("POST", path, `{"count":3,"timeout":100}`), 201)
	if len(forks) != 3 {
		t.Fatalf("got %v", forks)
	}
	for _, f := range forks {
		if f.Error != nil || f.Sandbox.EnvdAccessToken == s.EnvdAccessToken || f.Sandbox.EnvdAccessToken == "" ||
			b.record(*f.Sandbox).Metadata["m"] != "1" {
			t.Errorf("got %+v", f)
			continue
		}
		mixed := *f.Sandbox
		mixed.EnvdAccessToken = s.EnvdAccessToken
		if a := b.envd(mixed, "GET", "/envs", ""); a.StatusCode != 401 {
			t.Errorf("its parent's token opens it: %s", a.Status)
		}
		if a := b.envd(*f.Sandbox, "GET", "/envs", ""); a.StatusCode != 200 || !strings.Contains(a.body, `"X":"1"`) {
			t.Errorf("its environment: %s %s", a.Status, a.body)
		}
	}
	if all, _ := b.engine.ListSnapshots(t.Context()); len(all) != 1 {
		t.Errorf("%d snapshots are left", len(all))
	}
	for _, body := range []string{`{"count":0}`, `{"count":1001}`, `{"timeout":0}`, `{"count":"x"}`} {
		wantError(t, b.do("POST", path, body), 400)
	}
	wantError(t, b.do("POST", "/sandboxes/sb000000099999/fork", `{}`), 404)
}

// Another tenant's objects are not found, with any request.
func TestTenants(t *testing.T) {
	b := newBench(t)
	mine := want[created](t, b.do("POST", "/v2/sandboxes", `{"templateID":"base"}`, "X-API-KEY", "tenant_a"), 201)
	path := "/sandboxes/" + mine.SandboxID
	for _, c := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/connect"}, {"POST", "/pause"}, {"POST", "/resume"},
		{"POST", "/timeout"}, {"POST", "/refreshes"}, {"POST", "/snapshots"}, {"POST", "/fork"}, {"PUT", "/network"},
		{"GET", "/metrics"}, {"GET", "/logs"}} {
		body := ""
		if c[0] != "GET" {
			body = `{"timeout":5}`
		}
		wantError(t, b.do(c[0], path+c[1], body, "X-API-KEY", "tenant_b"), 404)
	}
	for key, n := range map[string]int{"tenant_a": 1, "tenant_b": 0, apiKey: 1} {
		if all := want[[]any](t, b.do("GET", "/v2/sandboxes", "", "X-API-KEY", key), 200); len(all) != n {
			t.Errorf("%s sees %d", key, len(all))
		}
	}
}

func TestMetricsLogsAndNetwork(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base"}`)
	path := "/sandboxes/" + s.SandboxID
	samples := want[[]map[string]any](t, b.do("GET", path+"/metrics", ""), 200)
	if len(samples) != 1 || samples[0]["memTotal"].(float64) < 1<<20 || samples[0]["timestampUnix"] == nil {
		t.Errorf("got %v", samples)
	}
	b.clock.pass(6 * time.Second)
	if again := want[[]any](t, b.do("GET", path+"/metrics", ""), 200); len(again) != 2 {
		t.Errorf("after 6 s there are %d", len(again))
	}
	if none := want[[]any](t, b.do("GET", path+"/metrics?start=1&end=2", ""), 200); none == nil || len(none) != 0 {
		t.Errorf("before it was made: %v", none)
	}
	wantError(t, b.do("GET", path+"/metrics?start=x", ""), 400)
	want[map[string]any](t, b.do("GET", "/sandboxes/metrics?sandbox_ids="+s.SandboxID+",none", ""), 200)
	want[map[string]any](t, b.do("GET", "/v2"+path+"/logs", ""), 200)
	want[map[string]any](t, b.do("GET", path+"/logs", ""), 200)
	want[any](t, b.do("PUT", path+"/network", `{"allowOut":["*.example.com"],"denyOut":["0.0.0.0/0"]}`), 204)
	if d := want[map[string]any](t, b.do("GET", path, ""), 200); d["network"] == nil {
		t.Errorf("got %v", d)
	}
	wantError(t, b.do("PUT", path+"/network", `{"allowOut":["a.example"]}`), 400)
}

func TestWhatIsNotThere(t *testing.T) {
	b := newBench(t)
	for _, c := range [][2]string{{"POST", "/v3/templates"}, {"GET", "/volumes"}, {"GET", "/volumes/x"},
		{"GET", "/templates/x/builds/y/status"}, {"POST", "/templates/tags"}} {
		a := b.do(c[0], c[1], `{}`)
		wantError(t, a, 501, "not supported")
		if a.Header.Get("Should-Retry") != "false" {
			t.Errorf("%s may be repeated", c[1])
		}
	}
	content := b.do("PUT", "/volumecontent/v/file?path=/f", "data", "Authorization", "Bearer of-the-volume")
	want[map[string]any](t, content, 501) // its code is a text
	for _, path := range []string{"/v2/none", "/sandboxes/", "/sandboxes/x/none", "/v2//sandboxes", "/v3/sandboxes"} {
		wantError(t, b.do("GET", path, ""), 404)
	}
	for _, path := range []string{"/v1/sandboxes", "/healthz", "/version", "/", "/metrics", "/sandboxes-x"} {
		if a := b.do("GET", path, ""); a.StatusCode != http.StatusTeapot {
			t.Errorf("%s is not the native API's: %s", path, a.Status)
		}
	}
	if a := b.do("GET", "/health", ""); a.StatusCode != 200 {
		t.Errorf("health: %s", a.Status)
	}
}

func TestTheLeastOfLives(t *testing.T) {
	b := newBench(t, func(o *e2bapi.Options) { o.Lives = nil })
	s := b.create(`{"templateID":"base","timeout":60}`)
	other := b.create(`{"templateID":"base","timeout":60}`)
	ended := make(chan struct{})
	go func() { defer close(ended); b.h.Run(t.Context()) }()
	t.Cleanup(func() { <-ended })
	wantError(t, b.do("POST", "/sandboxes/"+s.SandboxID+"/pause", ``), 501)
	wantError(t, b.do("POST", "/v2/sandboxes", `{"templateID":"base","autoPause":true}`), 501)
	want[any](t, b.do("POST", "/sandboxes/"+s.SandboxID+"/timeout", `{"timeout":0}`), 204)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if b.do("GET", "/sandboxes/"+s.SandboxID, "").StatusCode == 404 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not end")
		}
	}
	want[any](t, b.do("GET", "/sandboxes/"+other.SandboxID, ""), 200)
}
