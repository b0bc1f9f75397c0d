package e2bapi_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// builder returns a bench with fast builds.
func builder(t *testing.T, tune ...func(*build.Config)) *bench {
	t.Helper()
	return builderIn(t, t.TempDir(), tune...)
}

func builderIn(t *testing.T, dir string, tune ...func(*build.Config)) *bench {
	t.Helper()
	if os.Getuid() != 0 {
		t.Log("steps act as root in their guest, which is this host")
		t.SkipNow()
	}
	store, skipped, err := build.OpenStore(dir)
	if err != nil || len(skipped) > 0 {
		t.Fatalf("%v, %v", skipped, err)
	}
	b := newBench(t, func(o *e2bapi.Options) {
		o.Builds = store
		o.TuneBuilds = func(c *build.Config) {
			c.ReadyEvery, c.StartWait = 5*time.Millisecond, 5*time.Millisecond
			for _, f := range tune {
				f(c)
			}
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { b.h.Run(ctx); close(ran) }()
	b.stop = func() { cancel(); <-ran }
	t.Cleanup(b.stop)
	return b
}

type requested struct {
	TemplateID, BuildID  string
	Public               *bool
	Aliases, Names, Tags []string
}

type entry struct {
	Timestamp            time.Time
	Level, Message, Step string
}

type buildStatus struct {
	TemplateID, BuildID, Status string
	Logs                        []string
	LogEntries                  []entry
	Reason                      *struct {
		Message, Step string
		LogEntries    []entry
	}
	log []string
}

func (b *bench) request(body string) requested {
	b.t.Helper()
	return want[requested](b.t, b.do("POST", "/v3/templates", body), 202)
}

// begin sends a build's steps.
func (b *bench) begin(r requested, body any) {
	b.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	want[any](b.t, b.do("POST", "/v2/templates/"+r.TemplateID+"/builds/"+r.BuildID, string(text)), 202)
}

// outcome polls like a client until the build has ended and its whole log is read.
func (b *bench) outcome(r requested) buildStatus {
	b.t.Helper()
	var log []string
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		path := fmt.Sprintf("/templates/%s/builds/%s/status?logsOffset=%d", r.TemplateID, r.BuildID, len(log))
		s := want[buildStatus](b.t, b.do("GET", path, ""), 200)
		for _, e := range s.LogEntries {
			log = append(log, e.Message)
		}
		if (s.Status == "ready" || s.Status == "error") && len(s.LogEntries) == 0 {
			s.log = log
			return s
		}
		<-time.After(2 * time.Millisecond)
	}
	b.t.Fatalf("build of %s is not over: %q", r.Names, log)
	return buildStatus{}
}

type steps []map[string]any

func step(kind string, args ...string) map[string]any {
	return map[string]any{"type": kind, "args": args}
}

func (b *bench) build(name string, body map[string]any) (requested, buildStatus) {
	b.t.Helper()
	r := b.request(fmt.Sprintf(`{"name":%q}`, name))
	b.begin(r, body)
	return r, b.outcome(r)
}

// ready is build for builds that must succeed.
func (b *bench) ready(name string, body map[string]any) (requested, buildStatus) {
	b.t.Helper()
	r, s := b.build(name, body)
	if s.Status != "ready" {
		b.t.Fatalf("%s: %+v: %s", name, s.Reason, strings.Join(s.log, "\n"))
	}
	return r, s
}

// ran counts runs of a test's program.
type ran string

func (r ran) command() string { return "echo ran >>" + string(r) }

func (r ran) times() int {
	out, _ := os.ReadFile(string(r))
	return strings.Count(string(out), "ran")
}

func TestATemplateIsBuilt(t *testing.T) {
	b := builder(t)
	dir, count := t.TempDir(), ran(filepath.Join(t.TempDir(), "ran"))
	r, s := b.ready("My-Template", map[string]any{"fromImage": "e2bdev/base", "steps": steps{
		step("ENV", "A", "1", "B", "b $A ${A}c \\$A"), step("WORKDIR", dir+"/w/x"), step("USER", "root"),
		step("RUN", count.command()+"; echo out $A; echo err $B >&2; pwd; echo -n last"), step("ENV", "C", "3"),
	}, "startCmd": "echo started >" + dir + "/started; exec sleep 600", "readyCmd": "[ -f " + dir + "/started ]"})
	if len(r.TemplateID) != 20 || !slices.Equal(r.Aliases, []string{"my-template"}) ||
		!slices.Equal(r.Names, []string{"local/my-template"}) || !slices.Equal(r.Tags, []string{"default"}) || *r.Public {
		t.Errorf("requested: %+v", r)
	}
	log := strings.Join(s.log, "\n")
	for _, line := range []string{"FROM base", "[base] boot", "[builder 1/5] ENV A 1 B b $A ${A}c \\$A",
		"[builder 2/5] WORKDIR " + dir,
		"[builder 4/5] RUN echo ran", "[builder 4/5] [stdout]: out 1", "[builder 4/5] [stderr]: err b 1 1c $A",
		"[builder 4/5] [stdout]: " + dir + "/w/x\n", "[builder 4/5] [stdout]: last", "Template is ready", "Build finished"} {
		if !strings.Contains(log, line) {
			t.Errorf("the log has no %q:\n%s", line, log)
		}
	}
	made := b.create(`{"templateID":"my-template","envVars":{"C":"4"}}`)
	if made.TemplateID != r.TemplateID {
		t.Errorf("the sandbox is of %s", made.TemplateID)
	}
	envs := want[map[string]string](t, b.envd(made, "GET", "/envs", ""), 200)
	if envs["A"] != "1" || envs["B"] != "b 1 1c $A" || envs["C"] != "4" || envs["E2B_TEMPLATE_ID"] != r.TemplateID {
		t.Errorf("variables of sandboxes are %v", envs)
	}
	if all := want[[]created](t, b.do("GET", "/v2/sandboxes?template=my-template", ""), 200); len(all) != 1 {
		t.Errorf("%d sandboxes are of the template", len(all))
	}
	if n := len(b.engine.List()); n != 1 || count.times() != 1 {
		t.Errorf("%d sandboxes, the step ran %d times", n, count.times())
	}
}

func TestStepsAreTakenFromTheCache(t *testing.T) {
	b := builder(t)
	one, two := ran(filepath.Join(t.TempDir(), "1")), ran(filepath.Join(t.TempDir(), "2"))
	body := func(change ...any) map[string]any {
		m := map[string]any{"steps": steps{step("RUN", one.command()), step("ENV", "A", "1"), step("RUN", two.command())}}
		for i := 0; i+1 < len(change); i += 2 {
			m[change[i].(string)] = change[i+1]
		}
		return m
	}
	times := func(what string, wantOne, wantTwo int) {
		t.Helper()
		if one.times() != wantOne || two.times() != wantTwo {
			t.Errorf("%s: the steps ran %d and %d times, want %d and %d", what, one.times(), two.times(), wantOne, wantTwo)
		}
	}
	b.ready("a", body())
	times("at first", 1, 1)
	_, s := b.ready("b", body())
	times("again", 1, 1)
	if log := strings.Join(s.log, "\n"); !strings.Contains(log, "CACHED [builder 3/3] RUN") {
		t.Errorf("the log does not say so: %s", log)
	}
	forced := step("RUN", two.command())
	forced["force"] = true
	b.ready("c", body("steps", steps{step("RUN", one.command()), step("ENV", "A", "1"), forced}))
	times("with one step forced", 1, 2)
	b.ready("c", body())
	times("after that", 1, 2)
	b.ready("c", body("force", true))
	times("forced", 2, 3)
	b.ready("d", body("steps", steps{step("RUN", one.command()), step("ENV", "A", "2"), step("RUN", two.command())}))
	times("with another variable", 2, 4)
	b.ready("d", body("startCmd", "sleep 100"))
	times("with a start command", 2, 4)
	b.ready("e", map[string]any{"fromTemplate": "a", "steps": steps{step("RUN", one.command())}})
	times("on top of a template", 3, 4)
}

// Concurrent builds with the same layers build each layer once.
func TestBuildsAtTheSameTime(t *testing.T) {
	b := builder(t, func(c *build.Config) { c.Parallel = 4 })
	count := ran(filepath.Join(t.TempDir(), "ran"))
	var all []requested
	for range 4 {
		r := b.request(`{"name":"same"}`)
		b.begin(r, map[string]any{"steps": steps{step("RUN", "sleep 0.1; "+count.command())}})
		all = append(all, r)
	}
	for _, r := range all {
		if s := b.outcome(r); s.Status != "ready" {
			t.Errorf("%+v", s.Reason)
		}
		if r.TemplateID != all[0].TemplateID {
			t.Error("one name is two templates")
		}
	}
	if count.times() != 1 {
		t.Errorf("the step ran %d times", count.times())
	}
	tags := want[[]struct{ Tag, BuildID string }](t, b.do("GET", "/templates/same/tags", ""), 200)
	if len(tags) != 1 || tags[0].BuildID != all[3].BuildID {
		t.Errorf("the tags are %+v, want the build that was asked for last", tags)
	}
}

func TestBuildsWaitForTheirTurn(t *testing.T) {
	b := builder(t, func(c *build.Config) { c.Parallel, c.Queue = 1, 2 })
	gate := filepath.Join(t.TempDir(), "go")
	wait := map[string]any{"steps": steps{step("RUN", "while [ ! -e "+gate+" ]; do sleep 0.01; done")}}
	first, second, third := b.request(`{"name":"a"}`), b.request(`{"name":"b"}`), b.request(`{"name":"c"}`)
	b.begin(first, wait)
	b.until(first, "building")
	b.begin(second, wait)
	text, _ := json.Marshal(wait)
	wantError(t, b.do("POST", "/v2/templates/"+third.TemplateID+"/builds/"+third.BuildID, string(text)), 503)
	if s := b.status(second); s.Status != "waiting" {
		t.Errorf("the second is %s", s.Status)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []requested{first, second} {
		if s := b.outcome(r); s.Status != "ready" {
			t.Errorf("%+v", s.Reason)
		}
	}
	b.begin(third, wait)
	b.outcome(third)
}

func (b *bench) status(r requested) buildStatus {
	b.t.Helper()
	return want[buildStatus](b.t, b.do("GET", "/templates/"+r.TemplateID+"/builds/"+r.BuildID+"/status", ""), 200)
}

func (b *bench) until(r requested, status string) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if b.status(r).Status == status {
			return
		}
		<-time.After(2 * time.Millisecond)
	}
	b.t.Fatalf("the build is not %s", status)
}

func TestBuildsThatFail(t *testing.T) {
	b := builder(t, func(c *build.Config) { c.ReadyTimeout = 2 * time.Second })
	for name, row := range map[string]struct {
		body        map[string]any
		step, says  string
		alsoInLog   string
		notInReason string
	}{
		"run": {map[string]any{"steps": steps{step("RUN", "true"),
			step("RUN", "echo fine; echo 'no such thing' >&2; exit 3")}},
			"2", "failed to run command 'echo fine; echo 'no such thing' >&2; exit 3': " +
				"command failed: exit status 3\nno such thing",
			"[builder 2/2] [stderr]: no such thing", ""},
		"user": {map[string]any{"steps": steps{step("RUN", "true", "nobody-here")}}, "1",
			"failed to run command 'true': command failed: unauthenticated: invalid username: 'nobody-here'", "", ""},
		"base":   {map[string]any{"fromImage": "no-such-image"}, "base", "no-such-image", "", ""},
		"base2":  {map[string]any{"fromTemplate": "no-such:v1"}, "base", "template 'no-such:v1' not found", "", ""},
		"broken": {map[string]any{"fromTemplate": "empty"}, "base", "template 'empty' not found", "", ""},
		"files": {map[string]any{"steps": steps{{"type": "COPY", "args": []string{"a", "/b"},
			"filesHash": strings.Repeat("0", 64)}}},
			"1", "its files were not uploaded", "", ""},
		"start": {map[string]any{"startCmd": "echo oh no; exit 4", "readyCmd": "false"}, "finalize", "exit status 4",
			"[start] [stdout]: oh no", ""},
		"ready": {map[string]any{"readyCmd": "false"}, "finalize", "did not succeed within 2s", "", ""},
		"workdir": {map[string]any{"steps": steps{step("WORKDIR", "/proc/nowhere")}}, "1",
			"failed to create workdir", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := b.build("failing-"+name, row.body)
			if s.Status != "error" || s.Reason == nil || s.Reason.Step != row.step ||
				!strings.Contains(s.Reason.Message, row.says) {
				t.Fatalf("%s %+v, want %q at %s", s.Status, s.Reason, row.says, row.step)
			}
			if log := strings.Join(s.log, "\n"); !strings.Contains(log, row.alsoInLog) ||
				!strings.Contains(log, "Build failed: ") {
				t.Errorf("the log is %s", log)
			}
			wantError(t, b.do("POST", "/v2/sandboxes", `{"templateID":"failing-`+name+`"}`), 404, "failing-"+name)
			wantError(t, b.do("GET", "/templates/aliases/failing-"+name, ""), 404)
		})
	}
	if n := len(b.engine.List()); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

func TestBuildsThatAreRefused(t *testing.T) {
	b := builder(t)
	for body, word := range map[string]string{
		`{"name":""}`: "Invalid template name", `{"name":"a b"}`: "Invalid template name", `{"name":"a/b/c"}`: "Invalid",
		`{"name":"a:b c"}`: "Invalid tag", `{"name":"a","tags":["x/y"]}`: "Invalid tag", `{"name":"a","cpuCount":-1}`: "no machine",
		`{`: "parsing",
	} {
		wantError(t, b.do("POST", "/v3/templates", body), 400, word)
	}
	r := b.request(`{"name":"ok:v1.0","tags":["stable","v1.0"]}`)
	if !slices.Equal(r.Tags, []string{"v1.0", "stable"}) {
		t.Errorf("tags are %q", r.Tags)
	}
	at := "/v2/templates/" + r.TemplateID + "/builds/" + r.BuildID
	for _, row := range []struct{ body, word string }{
		{`{"fromImage":"python:3"}`, "would come from a registry"}, {`{"fromImage":"ghcr.io/a/b"}`, "registry"},
		{`{"fromImage":"x","fromImageRegistry":{"type":"registry","username":"u","password":"secret"}}`, "registry"},
		{`{"steps":[{"type":"RUN","args":[]}]}`, "step 1: RUN requires a command"},
		{`{"steps":[{"type":"ENV","args":["A"]}]}`, "both a key and value"}, {`{"steps":[{"type":"ENV","args":["A=","b"]}]}`, "no name"},
		{`{"steps":[{"type":"COPY","args":["a"]}]}`, "COPY requires"}, {`{"steps":[{"type":"COPY","args":["a","b"]}]}`, "files hash"},
		{`{"steps":[{"type":"COPY","args":["a","b","","99"],"filesHash":"` + strings.Repeat("a", 64) + `"}]}`, "octal"},
		{`{"steps":[{"type":"WORKDIR"}]}`, "WORKDIR requires"}, {`{"steps":[{"type":"USER","args":[""]}]}`, "USER requires"},
		{`{"steps":[{"type":"EXPOSE","args":["1"]}]}`, "no step that this server knows"},
		{`{"steps":[{"type":"RUN","args":["a\u0000b"]}]}`, "zero byte"},
		{`{"steps":[` + strings.Repeat(`{"type":"RUN","args":["a"]},`, 500) + `{"type":"RUN","args":["a"]}]}`, "501 steps"},
	} {
		wantError(t, b.do("POST", at, row.body), 400, row.word)
	}
	b.begin(r, map[string]any{})
	b.outcome(r)
	wantError(t, b.do("POST", at, `{}`), 400, "begun already")
	for _, path := range []string{"/templates/" + r.TemplateID + "/builds/nope/status",
		"/templates/nope/builds/" + r.BuildID + "/status",
		"/templates/nope/files/" + strings.Repeat("a", 64)} {
		wantError(t, b.do("GET", path, ""), 404)
		wantError(t, b.do("GET", path, "", "X-API-KEY", "wrong"), 401)
	}
	status := "/templates/" + r.TemplateID + "/builds/" + r.BuildID + "/status"
	wantError(t, b.do("GET", status, "", "X-API-KEY", "tenant_a"), 404)
	wantError(t, b.do("GET", status+"?logsOffset=-1", ""), 400)
}

func TestTagsOfTemplates(t *testing.T) {
	b := builder(t)
	r, _ := b.ready("app:v1", map[string]any{"steps": steps{step("RUN", "true")}})
	wantError(t, b.do("POST", "/v2/sandboxes", `{"templateID":"app"}`), 404, "default")
	b.create(`{"templateID":"app:v1"}`)
	b.create(`{"templateID":"local/app:v1"}`)
	type assigned struct {
		BuildID string
		Tags    []string
	}
	got := want[assigned](t, b.do("POST", "/templates/tags", `{"target":"app:v1","tags":["default","v1.0.1","default"]}`), 201)
	if got.BuildID != r.BuildID || !slices.Equal(got.Tags, []string{"default", "v1.0.1"}) {
		t.Errorf("assigned: %+v", got)
	}
	b.create(`{"templateID":"app"}`)
	b.create(`{"templateID":"` + r.TemplateID + `"}`)
	again, _ := b.ready("app", map[string]any{"steps": steps{step("RUN", "true; true")}})
	tags := want[[]struct {
		Tag, BuildID string
		CreatedAt    time.Time
	}](t, b.do("GET", "/templates/local%2Fapp/tags", ""), 200)
	of := map[string]string{}
	for _, x := range tags {
		of[x.Tag] = x.BuildID
	}
	if len(of) != 3 || of["v1"] != r.BuildID || of["v1.0.1"] != r.BuildID || of["default"] != again.BuildID {
		t.Errorf("tags are %v", of)
	}
	want[any](t, b.do("DELETE", "/templates/tags", `{"name":"app","tags":["v1","never"]}`), 204)
	wantError(t, b.do("POST", "/v2/sandboxes", `{"templateID":"app:v1"}`), 404)
	for body, word := range map[string]string{
		`{"name":"app","tags":["default"]}`: "Cannot delete the 'default' tag", `{"name":"app:v1","tags":["a"]}`: "should not contain a tag",
		`{"name":"app","tags":[]}`: "At least one", `{"name":"app","tags":["a b"]}`: "Invalid tag",
	} {
		wantError(t, b.do("DELETE", "/templates/tags", body), 400, word)
	}
	wantError(t, b.do("DELETE", "/templates/tags", `{"name":"nope","tags":["a"]}`), 404)
	wantError(t, b.do("POST", "/templates/tags", `{"target":"nope:v1","tags":["a"]}`), 404)
	wantError(t, b.do("POST", "/templates/tags", `{"target":"app:nope","tags":["a"]}`), 404)
	wantError(t, b.do("POST", "/templates/tags", `{"target":"app","tags":["a:b"]}`), 400)
	for alias, status := range map[string]int{"app": 200, "local%2Fapp": 200, "app:v1.0.1": 200, "app:v1": 404, "nope": 404} {
		if a := b.do("GET", "/templates/aliases/"+alias, ""); a.StatusCode != status {
			t.Errorf("%s: %s", alias, a.Status)
		}
	}
	wantError(t, b.do("GET", "/templates/aliases/app", "", "X-API-KEY", "tenant_a"), 404)
}

func TestTemplatesAreListedAndDeleted(t *testing.T) {
	b := builder(t)
	r, _ := b.ready("app", map[string]any{"steps": steps{step("RUN", "true"), step("RUN", "true")}})
	all := want[[]struct{ TemplateID, BuildID, BuildStatus string }](t, b.do("GET", "/templates", ""), 200)
	if len(all) != 2 || all[0].TemplateID != r.TemplateID || all[0].BuildStatus != "ready" || all[1].TemplateID != "base" {
		t.Errorf("listed: %+v", all)
	}
	one := want[struct {
		TemplateID string
		Builds     []struct{ BuildID, Status string }
	}](t, b.do("GET", "/templates/app", ""), 200)
	if one.TemplateID != r.TemplateID || len(one.Builds) != 1 || one.Builds[0].Status != "ready" {
		t.Errorf("it is %+v", one)
	}
	if some := want[[]any](t, b.do("GET", "/snapshots", ""), 200); len(some) != 0 {
		t.Errorf("layers are listed as snapshots: %v", some)
	}
	// Another template on top of it keeps its layers.
	b.ready("over", map[string]any{"fromTemplate": "app", "steps": steps{step("RUN", "true; true")}})
	s := b.create(`{"templateID":"over"}`)
	wantError(t, b.do("DELETE", "/templates/over", ""), 400, "cannot delete template 'over'")
	want[any](t, b.do("DELETE", "/sandboxes/"+s.SandboxID, ""), 204)
	wantError(t, b.do("DELETE", "/templates/over", "", "X-API-KEY", "tenant_a"), 404)
	want[any](t, b.do("DELETE", "/templates/"+r.TemplateID, ""), 204)
	b.create(`{"templateID":"over"}`)
	wantError(t, b.do("POST", "/v2/sandboxes", `{"templateID":"app"}`), 404)
	wantError(t, b.do("DELETE", "/templates/app", ""), 404)
}

// A layer without a template is collected a week after its last use, unless a sandbox runs from it.
// A template's layers stay at any age.
func TestLayersThatNothingUsesGo(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("steps act as root in their guest, which is this host")
		t.SkipNow()
	}
	dir := t.TempDir()
	b := builderIn(t, dir, func(c *build.Config) { c.Now = time.Now }) // the younger of two layers is known by its time
	// made builds the template again, and returns the new layers.
	made := func(version string) (fresh []string) {
		before := b.layers()
		b.ready("app", map[string]any{"steps": steps{step("RUN", "true "+version), step("RUN", "true")}})
		return slices.DeleteFunc(b.layers(), func(tag string) bool { return slices.Contains(before, tag) })
	}
	used := made("1")
	s := b.create(`{"templateID":"app"}`)
	unused := made("2")
	needed := made("3")
	if len(used) != 2 || len(unused) != 2 || len(needed) != 2 {
		t.Fatalf("layers %q, %q, %q: want two of each", used, unused, needed)
	}
	b.stop()
	after := func(what string, d time.Duration, kept ...string) {
		t.Helper()
		b.clock.pass(d)
		store, _, err := build.OpenStore(dir)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		build.New(build.Config{Engine: b.engine, Store: store, Now: b.clock.now}).Run(ctx) // collects once
		if got := b.layers(); !slices.Equal(got, slices.Sorted(slices.Values(kept))) {
			t.Errorf("%s there are the layers %q, want %q of %q, %q, %q", what, got, kept, used, unused, needed)
		}
	}
	after("within a week", 6*24*time.Hour, slices.Concat(used, unused, needed)...)
	after("after it", 2*24*time.Hour, slices.Concat(used, needed)...)
	if err := b.engine.Kill(t.Context(), sandbox.CanonicalID(s.SandboxID)); err != nil {
		t.Fatal(err)
	}
	after("when nothing runs from them", 0, needed...)
	after("after a year", 365*24*time.Hour, needed...)
	b.create(`{"templateID":"app"}`)
}

// layers returns the snapshots of steps, by their tags.
func (b *bench) layers() (tags []string) {
	b.t.Helper()
	all, err := b.engine.ListSnapshots(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range all {
		if strings.HasPrefix(s.Tag, "e2b-") {
			tags = append(tags, s.Tag)
		}
	}
	slices.Sort(tags)
	return tags
}

// A template on an image has the requested CPUs and memory. A template on a template has its
// base's, and the log says so.
func TestTheSizeOfATemplate(t *testing.T) {
	b := builder(t)
	sized := func(name, size string, body map[string]any) (buildStatus, listed) {
		t.Helper()
		r := b.request(fmt.Sprintf(`{"name":%q,%s}`, name, size))
		b.begin(r, body)
		s := b.outcome(r)
		if s.Status != "ready" {
			t.Fatalf("%s: %+v", name, s.Reason)
		}
		made := b.create(fmt.Sprintf(`{"templateID":%q}`, name))
		return s, want[listed](t, b.do("GET", "/sandboxes/"+made.SandboxID, ""), 200)
	}
	image := map[string]any{"fromImage": "base", "steps": steps{step("RUN", "true")}}
	if _, got := sized("plain", `"cpuCount":0`, image); got != (listed{1, 256}) {
		t.Errorf("of no size: %+v", got)
	}
	large := `"cpuCount":2,"memoryMB":512`
	if s, got := sized("large", large, image); got != (listed{2, 512}) || strings.Contains(strings.Join(s.log, ""), "has the size") {
		t.Errorf("two CPUs and 512 MiB: %+v, %q", got, s.log)
	}
	n := len(b.layers())
	if s, got := sized("same", large, image); got != (listed{2, 512}) || len(b.layers()) != n {
		t.Errorf("the same again: %+v, %d layers, before %d: %q", got, len(b.layers()), n, s.log)
	}
	s, got := sized("over", `"cpuCount":4,"memoryMB":1024`, map[string]any{"fromTemplate": "large"})
	if got != (listed{2, 512}) ||
		!strings.Contains(strings.Join(s.log, "\n"), "the template has the size of its base: 2 CPUs and 512 MiB") {
		t.Errorf("over a template: %+v, %q", got, s.log)
	}
}

// listed is the size of a sandbox in an answer.
type listed struct{ CPUCount, MemoryMB int }

// Deleting a template cancels its build, and leaves no traces.
func TestABuildIsCalledOff(t *testing.T) {
	b := builder(t)
	r := b.request(`{"name":"long"}`)
	b.begin(r, map[string]any{"steps": steps{step("RUN", "sleep 600")}})
	b.until(r, "building")
	want[any](t, b.do("DELETE", "/templates/long", ""), 204)
	b.stop() // waits for builds
	if n := len(b.engine.List()); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

func TestADaemonThatEndsDuringABuild(t *testing.T) {
	dir := t.TempDir()
	b := builder(t)
	b.stop()
	b = builderIn(t, dir)
	r, waits := b.request(`{"name":"long"}`), b.request(`{"name":"waits"}`)
	b.begin(r, map[string]any{"steps": steps{step("RUN", "sleep 600")}})
	b.until(r, "building")
	b.stop()
	if s := b.status(r); s.Status != "error" || !strings.Contains(s.Reason.Message, "the daemon was stopped during the build") {
		t.Errorf("%s, %+v", s.Status, s.Reason)
	}
	if n := len(b.engine.List()); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	wantError(t, b.do("POST", "/v2/templates/"+waits.TemplateID+"/builds/"+waits.BuildID, `{}`), 503)
	next := builderIn(t, dir)
	if s := next.status(waits); s.Status != "error" || !strings.Contains(s.Reason.Message, "before the build began") {
		t.Errorf("%s, %+v", s.Status, s.Reason)
	}
}

// packed returns a tar file with the named files.
func packed(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i+1 < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o640, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type link struct {
	Present bool
	URL     string
}

func (b *bench) put(url string, body io.Reader, length int64) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, url, body)
	if err != nil {
		b.t.Fatal(err)
	}
	req.ContentLength = length
	resp, err := b.server.Client().Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, _ := io.ReadAll(resp.Body)
	return answer{resp, string(all)}
}

func TestFilesAreUploadedAndCopied(t *testing.T) {
	b := builder(t)
	dir, hash := t.TempDir(), strings.Repeat("ab", 32)
	r := b.request(`{"name":"files"}`)
	at := "/templates/" + r.TemplateID + "/files/" + hash
	l := want[link](t, b.do("GET", at, ""), 201)
	if l.Present || l.URL == "" {
		t.Fatalf("the link is %+v", l)
	}
	tarball := packed(t, "src/a.txt", "content of a", "src/d/b.txt", "content of b")
	send := func(url string, body []byte) answer { return b.put(url, bytes.NewReader(body), int64(len(body))) }
	wantError(t, send(b.server.URL+at, tarball), 403)
	wantError(t, send(strings.Replace(l.URL, "signature=", "signature=0", 1), tarball), 403)
	wantError(t, send(strings.Replace(l.URL, hash, strings.Repeat("cd", 32), 1), tarball), 403)
	wantError(t, send(l.URL, []byte("no archive")), 400, "archive")
	wantError(t, send(l.URL, packed(t, "../../etc/passwd", "x")), 400, "leads out")
	wantError(t, b.put(l.URL, struct{ io.Reader }{bytes.NewReader(tarball)}, -1), 411)
	if want[link](t, b.do("GET", at, ""), 201).Present {
		t.Error("what was refused is there")
	}
	if a := send(l.URL, tarball); a.StatusCode != 200 {
		t.Fatal(a.body)
	}
	if !want[link](t, b.do("GET", at, ""), 201).Present {
		t.Error("what was uploaded is not there")
	}
	theirs := want[requested](t, b.do("POST", "/v3/templates", `{"name":"files"}`, "X-API-KEY", "tenant_a"), 202)
	if want[link](t, b.do("GET", "/templates/"+theirs.TemplateID+"/files/"+hash, "", "X-API-KEY", "tenant_a"), 201).Present {
		t.Error("another tenant has them")
	}
	b.clock.pass(2 * time.Hour)
	wantError(t, send(l.URL, tarball), 403, "expired")
	copyStep := map[string]any{"type": "COPY", "args": []string{"src", "into/", "root", "0600"}, "filesHash": hash}
	b.begin(r, map[string]any{"steps": steps{step("WORKDIR", dir), copyStep}})
	if s := b.outcome(r); s.Status != "ready" {
		t.Fatalf("%+v\n%s", s.Reason, strings.Join(s.log, "\n"))
	}
	for name, content := range map[string]string{"a.txt": "content of a", "d/b.txt": "content of b"} {
		path := filepath.Join(dir, "into", name)
		if got, err := os.ReadFile(path); string(got) != content {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if st, err := os.Stat(path); err == nil && st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", name, st.Mode())
		}
	}
}

func TestTheClockOfLinksIsTheServers(t *testing.T) {
	b := builder(t)
	r := b.request(`{"name":"files"}`)
	l := want[link](t, b.do("GET", "/templates/"+r.TemplateID+"/files/"+strings.Repeat("a", 64), ""), 201)
	wantError(t, b.put(strings.Replace(l.URL, "expires=", "expires=9", 1), strings.NewReader(""), 0), 403)
}

// The intended snapshot and the sandbox of a killed daemon are removed.
func TestWhatAKilledDaemonLeft(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("steps act as root in their guest, which is this host")
		t.SkipNow()
	}
	dir := t.TempDir()
	b := builderIn(t, dir)
	left := b.create(`{"templateID":"base"}`)
	id := sandbox.CanonicalID(left.SandboxID)
	if _, err := b.engine.Branch(t.Context(), sandbox.BranchRequest{SandboxID: id, Tag: "e2b-0123456789abcdef"}); err != nil {
		t.Fatal(err)
	}
	b.stop()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("outdated/e2b-0123456789abcdef.json", `{"tag":"e2b-0123456789abcdef","pending":true}`)
	write("templates/killed.json", `{"id":"killed","name":"killed","tags":{},"builds":[{"id":"b1","status":"building",
		"begun":true,"sandbox":"`+id+`"}]}`)
	store, _, err := build.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	next := build.New(build.Config{Engine: b.engine, Store: store})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	next.Run(ctx)
	if _, err := b.engine.Get(id); err == nil {
		t.Error("the sandbox is still there")
	}
	if _, err := b.engine.SnapshotInfo(t.Context(), "e2b-0123456789abcdef"); err == nil {
		t.Error("the snapshot is still there")
	}
	tmpl, err := store.Template("", "killed")
	if err != nil || tmpl.Builds[0].Status != build.Failed || !strings.Contains(tmpl.Builds[0].Reason.Message, "ended during the build") ||
		tmpl.Builds[0].Sandbox != "" {
		t.Errorf("%+v, %v", tmpl, err)
	}
}
