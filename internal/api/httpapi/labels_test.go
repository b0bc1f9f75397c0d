package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

type labelSet = map[string]string

// query returns the query of a list with filters.
func query(filters ...string) string { return "?" + url.Values{"filter": filters}.Encode() }

// listed returns the names of the listed sandboxes.
func (b *bench) listed(filters ...string) []string {
	b.t.Helper()
	return idsOf(into[[]api.SandboxInfo](b.t, b.do("GET", "/v1/sandboxes"+query(filters...), ""), 200))
}

func idsOf(list []api.SandboxInfo) []string {
	ids := []string{}
	for _, i := range list {
		ids = append(ids, i.ID)
	}
	return ids
}

func TestLabels(t *testing.T) {
	b := newBench(t)
	made := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":2,"labels":{"job":"7","a,b":"1,2"}}`), 201)
	id := made[0].ID
	if !maps.Equal(made[1].Labels, labelSet{"job": "7", "a,b": "1,2"}) {
		t.Errorf("made with %v", made[1].Labels)
	}
	path := "/v1/sandboxes/" + id + "/labels"
	got := into[api.SandboxInfo](t, b.do("PATCH", path, `{"set":{"job":"8","new":""},"remove":["a,b"]}`), 200)
	if !maps.Equal(got.Labels, labelSet{"job": "8", "new": ""}) {
		t.Errorf("changed to %v", got.Labels)
	}
	for filter, want := range map[string][]string{
		"label=job": {id, made[1].ID}, "label=job=7": {made[1].ID}, "label=a,b=1,2": {made[1].ID}, "label=new=": {id},
		"label=other": {}, "status=running": {id, made[1].ID}, "status=paused": {}, "snapshot=py": {id, made[1].ID},
		"snapshot=p": {}, "parent=sb-none": {}, "name=" + id[3:]: {id}, "since=" + id: {},
		"before=" + made[0].DNSID: {},
	} {
		if got := b.listed(filter); !slices.Equal(got, want) {
			t.Errorf("%s lists %v, want %v", filter, got, want)
		}
	}
	branch := b.branch(id, `{"tag":"mid","n":1,"labels":{"try":"1"}}`)
	want := labelSet{"job": "8", "new": "", "try": "1"}
	if !maps.Equal(branch.Labels, want) || !maps.Equal(branch.Children[0].Labels, want) {
		t.Errorf("the branch has %v, its child %v", branch.Labels, branch.Children[0].Labels)
	}
	snap := into[api.SnapshotInfo](t, b.do("PATCH", "/v1/snapshots/mid/labels", `{"remove":["job","new","try"],"set":{"kept":"yes"}}`), 200)
	if !maps.Equal(snap.Labels, labelSet{"kept": "yes"}) {
		t.Errorf("the snapshot has %v", snap.Labels)
	}
	into[api.SnapshotInfo](t, b.do("POST", "/v1/snapshots", `{"tag":"l","image":"python-numpy","labels":{"kept":"no"}}`), 201)
	into[api.SnapshotInfo](t, b.do("POST", "/v1/snapshots", `{"tag":"d","from":"py","exec":["true"],"labels":{"kept":"no"}}`), 201)
	for filter, want := range map[string]string{
		"label=kept": "d l mid", "label=kept=no": "d l", "image=python-numpy": "d l mid py", "parent=py": "d mid",
		"sandbox=" + id: "mid", "status=ready": "d l mid py", "agent=unknown": "d l mid py", "agent=old": "", "name=i": "mid", "status=writing": "",
	} {
		var tags []string
		for _, s := range into[[]api.SnapshotInfo](t, b.do("GET", "/v1/snapshots"+query(filter), ""), 200) {
			tags = append(tags, s.Tag)
		}
		if got := strings.Join(tags, " "); got != want {
			t.Errorf("%s lists %q, want %q", filter, got, want)
		}
	}
	images := into[[]api.Image](t, b.do("GET", "/v1/images"+query("name=numpy"), ""), 200)
	if len(images) != 1 || images[0].Name != "python-numpy" {
		t.Errorf("images: %+v", images)
	}
	if log := b.audit.String(); !strings.Contains(log, `"sandbox.label"`) || !strings.Contains(log, `"snapshot.label"`) ||
		!strings.Contains(log, "2 labels set, 1 removed") {
		t.Errorf("the audit log: %s", log)
	}
}

// Refused filters name the known ones.
func TestFiltersThatCannotBe(t *testing.T) {
	b := newBench(t)
	for path, rows := range map[string]map[string]string{
		"/v1/sandboxes": {"colour=red": "before, label, name, node, parent, since, snapshot, status", "status=asleep": "stalled",
			"since=sb-none": "no such entry", "label": "label=VALUE", "image=py": "not known here"},
		"/v1/snapshots": {"colour=red": "agent, before, image, label, name, parent, sandbox, since, status", "status=running": "ready, writing",
			"agent=0.1": "current, old, unknown"},
		"/v1/images": {"label=a": "before, name, since"},
	} {
		for filter, want := range rows {
			e := wantError(t, b.do("GET", path+query(filter), ""), api.CodeInvalid)
			if !strings.Contains(e.Message, want) {
				t.Errorf("%s of %s: %s, want %q", filter, path, e.Message, want)
			}
		}
	}
	wantError(t, b.do("GET", "/v1/sandboxes"+query(slices.Repeat([]string{"name=a"}, 33)...), ""), api.CodeInvalid)
	wantError(t, b.do("GET", "/v1/sandboxes"+query("name="+strings.Repeat("a", 2000)), ""), api.CodeInvalid)
}

// Hostile labels reach no list, log or header.
func TestHostileLabels(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	long, many := strings.Repeat("v", 513), labelSet{}
	for i := range 65 {
		many[fmt.Sprint("k", i)] = ""
	}
	for what, set := range map[string]labelSet{
		"a newline": {"a": "b\nc"}, "an escape": {"a": "\x1b]0;x\a"}, "a long value": {"a": long},
		"a long key": {long: ""}, "a key with a newline": {"a\nb": ""}, "too many": many, "no key": {"": ""},
		"a bidirectional override": {"a": "\u202e"},
	} {
		text, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		for path, body := range map[string]string{
			"POST /v1/sandboxes":                    `{"snapshot_tag":"py","labels":%s}`,
			"POST /v1/snapshots":                    `{"tag":"x","image":"python-numpy","labels":%s}`,
			"POST /v1/sandboxes/" + id + "/branch":  `{"tag":"x","labels":%s}`,
			"PATCH /v1/sandboxes/" + id + "/labels": `{"set":%s}`,
			"PATCH /v1/snapshots/py/labels":         `{"set":%s}`,
		} {
			method, path, _ := strings.Cut(path, " ")
			e := wantError(t, b.do(method, path, fmt.Sprintf(body, text)), api.CodeInvalid)
			if strings.ContainsAny(e.Message, "\n\x1b\u202e") || len(e.Message) > 600 {
				t.Errorf("%s of %s: %q", what, path, e.Message)
			}
		}
	}
	wantError(t, b.do("POST", "/v1/sandboxes", "{\"snapshot_tag\":\"py\",\"labels\":{\"a\":\"\xff\"}}"), api.CodeInvalid)
	for _, body := range []string{`{}`, `{"set":{"a":"1"},"remove":["a"]}`, `{"remove":[""]}`, `{"set":{"a":1}}`, `{"set":["a"]}`} {
		wantError(t, b.do("PATCH", "/v1/sandboxes/"+id+"/labels", body), api.CodeInvalid)
	}
	if got := b.listed("label=a"); len(got) != 0 {
		t.Errorf("labelled: %v", got)
	}
	for line := range strings.SplitSeq(b.audit.String(), "\n") {
		if len(line) > 8<<10 || strings.Contains(line, long) {
			t.Errorf("a line of the audit log has %d bytes", len(line))
		}
	}
}

// A tenant sees and changes its own labels only, and filters do not find those of others.
func TestLabelsOfTenants(t *testing.T) {
	b := newTenants(t)
	secret := `{"set":{"secret":"plan"}}`
	into[api.SandboxInfo](t, b.as(b.acme, "PATCH", "/v1/sandboxes/"+b.sandbox+"/labels", secret), 200)
	into[api.SnapshotInfo](t, b.as(b.acme, "PATCH", "/v1/snapshots/base/labels", secret), 200)
	into[api.SnapshotInfo](t, b.do("PATCH", "/v1/snapshots/py/labels", secret), 200)

	wantError(t, b.as(b.evil, "PATCH", "/v1/sandboxes/"+b.sandbox+"/labels", secret), api.CodeNotFound)
	wantError(t, b.as(b.evil, "PATCH", "/v1/snapshots/acme-base/labels", secret), api.CodeNotFound)
	wantError(t, b.as(b.evil, "PATCH", "/v1/snapshots/py/labels", secret), api.CodeForbidden)
	for _, path := range []string{"/v1/sandboxes", "/v1/snapshots", "/v1/sandboxes" + query("label=secret"),
		"/v1/snapshots" + query("label=secret=plan"), "/v1/snapshots/py/info"} {
		if w := b.as(b.evil, "GET", path, ""); w.Code != 200 || strings.Contains(w.Body.String(), "plan") {
			t.Errorf("%s: %d: %s", path, w.Code, w.Body)
		}
	}
	hidden := b.as(b.evil, "GET", "/v1/sandboxes"+query("since="+b.sandbox), "")
	none := b.as(b.evil, "GET", "/v1/sandboxes"+query("since=sb-none"), "")
	if e := wantError(t, hidden, api.CodeInvalid); e.Message != strings.ReplaceAll(wantError(t, none, api.CodeInvalid).Message, "sb-none", b.sandbox) {
		t.Errorf("another's sandbox is told from none: %s", e.Message)
	}
	for _, filter := range []string{"snapshot=base", "snapshot=acme-base", "label=secret"} {
		if got := idsOf(into[[]api.SandboxInfo](t, b.as(b.acme, "GET", "/v1/sandboxes"+query(filter), ""), 200)); !slices.Equal(got, []string{b.sandbox}) {
			t.Errorf("%s lists %v for its owner", filter, got)
		}
	}
	reader := b.key(keys.Spec{Name: "r", Tenant: "acme", Scopes: principal.Read})
	wantError(t, b.as(reader, "PATCH", "/v1/sandboxes/"+b.sandbox+"/labels", secret), api.CodeForbidden)
	if w := b.do("GET", "/metrics", ""); strings.Contains(w.Body.String(), "plan") || strings.Contains(w.Body.String(), "secret") {
		t.Error("metrics have a label of a user")
	}
}

// A filter over a thousand sandboxes with all their labels takes no longer than the list itself.
func TestAFilterOverManySandboxes(t *testing.T) {
	b := newBench(t)
	set := labelSet{}
	for i := range 64 {
		set[fmt.Sprintf("key-%02d", i)] = strings.Repeat("v", 200)
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", fmt.Sprintf(`{"snapshot_tag":"py","n":999,"labels":%s}`, text)), 201)
	one := b.fork("1")[0].ID
	into[api.SandboxInfo](t, b.do("PATCH", "/v1/sandboxes/"+one+"/labels", `{"set":{"rare":"1"}}`), 200)
	began := time.Now()
	filters := slices.Repeat([]string{"label=rare=1"}, 32)
	if got := b.listed(filters...); !slices.Equal(got, []string{one}) {
		t.Errorf("listed: %v", got)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the filtered list took %s", took)
	} else {
		t.Logf("filtered list: %s", took)
	}
}

// Labels with which the daemon marks its own sandboxes cannot be set or removed by a client, not even the operator's.
func TestReservedLabelsAreRefused(t *testing.T) {
	b := newTenants(t)
	const mark = `{"forkd.volume-files":"vol-000000000000000000000000","job":"7"}`
	of := "/v1/sandboxes/" + b.sandbox
	for what, as := range map[string]func(method, path, body string) *httptest.ResponseRecorder{
		"the operator": b.do, "a tenant": func(m, p, body string) *httptest.ResponseRecorder { return b.as(b.acme, m, p, body) },
	} {
		for name, q := range map[string][3]string{
			"create":          {"POST", "/v1/snapshots", `{"tag":"x","image":"python-numpy","labels":` + mark + `}`},
			"derive":          {"POST", "/v1/snapshots", `{"tag":"x","from":"py","labels":` + mark + `}`},
			"fork":            {"POST", "/v1/sandboxes", `{"snapshot_tag":"py","labels":` + mark + `}`},
			"branch":          {"POST", of + "/branch", `{"tag":"marked","labels":` + mark + `}`},
			"sandbox":         {"PATCH", of + "/labels", `{"set":` + mark + `}`},
			"sandbox, remove": {"PATCH", of + "/labels", `{"remove":["forkd.volume-files"]}`},
			"snapshot":        {"PATCH", "/v1/snapshots/base/labels", `{"set":` + mark + `}`},
		} {
			if e := wantError(t, as(q[0], q[1], q[2]), api.CodeInvalid); e.Reason != api.ReasonLabelReserved {
				t.Errorf("%s of %s: %+v", name, what, e)
			}
		}
	}
}
