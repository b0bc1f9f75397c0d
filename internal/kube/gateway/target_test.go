package gateway

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

const anID = "sb-gaytemzugu3doobzrsrnu"

func TestTargets(t *testing.T) {
	short := sandbox.DNSID(anID)
	for request, want := range map[string]target{
		"GET /v1/sandboxes":                         {kind: toList, list: bySandbox},
		"POST /v1/sandboxes":                        {kind: toFork},
		"POST /v1/sandboxes/":                       {kind: toFork},
		"POST /v1/sandboxes/keep":                   {kind: toKeep},
		"GET /v1/sandboxes/" + anID:                 {kind: toSandbox, id: anID},
		"GET /v1/sandboxes/" + short + "/agent/x/y": {kind: toSandbox, id: anID, guest: true},
		"GET /v1/sandboxes/a%2Fb/agent":             {kind: toSandbox, id: "a/b", guest: true},
		"POST /v1/snapshots":                        {kind: toMake},
		"GET /v1/snapshots":                         {kind: toList, list: oncePerTag},
		"PUT /v1/snapshots/t":                       {kind: toMake},
		"PUT /v1/snapshots/t/pool":                  {kind: toObject, tag: "t", probe: "/v1/snapshots/t/info"},
		"GET /v1/snapshots/t/diff/o":                {kind: toObject, tag: "t", other: "o", probe: "/v1/snapshots/t/info"},
		"GET /v1/snapshots/..%2Fx/info":             {kind: toObject, tag: "../x", probe: "/v1/snapshots/..%2Fx/info"},
		"PUT /v1/images/i":                          {kind: toMake},
		"HEAD /v1/images/i":                         {kind: toObject, probe: "/v1/images/i"},
		"POST /v1/workspaces":                       {kind: toWorkspace},
		"POST /v1/workspaces/w/resume":              {kind: toObject, probe: "/v1/workspaces/w"},
		"GET /v1/events":                            {kind: toEvents},
		"GET /v1/capacity":                          {kind: toNode},
		"POST /v1/keys":                             {kind: toNode},
		"GET /v1/unknown":                           {},
		"OPTIONS /v1/sandboxes":                     {},
		"GET /metrics":                              {kind: toNode},
		"GET /version":                              {},
		"GET /":                                     {},
		"POST /sandboxes":                           {kind: toCreate},
		"POST /v2/sandboxes":                        {kind: toCreate, repeats: true},
		"GET /v2/sandboxes":                         {kind: toPages},
		"GET /sandboxes/metrics":                    {},
		"POST /v2/sandboxes/" + short + "/connect":  {kind: toSandbox, id: anID, resumes: true},
		"POST /sandboxes/" + short + "/resume":      {kind: toSandbox, id: anID, resumes: true},
		"POST /v1/sandboxes/" + anID + "/resume":    {kind: toSandbox, id: anID, resumes: true},
		"GET /v1/sandboxes/" + anID + "/resume":     {kind: toSandbox, id: anID},
		"DELETE /sandboxes/" + short + "-old1d":     {kind: toSandbox, id: anID},
		"GET /templates/t":                          {kind: toObject, probe: "/templates/t"},
		"GET /v3":                                   {},
	} {
		method, path, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(method, "/", nil)
		u, err := url.Parse("http://h" + path)
		if err != nil {
			t.Fatal(err)
		}
		r.URL = u
		if got := targetOf(r, "forkd.localhost"); got != want {
			t.Errorf("%s: %+v, want %+v", request, got, want)
		}
	}
}

func TestHostsOfSandboxes(t *testing.T) {
	short := sandbox.DNSID(anID)
	for host, want := range map[string]string{
		"80-" + short + ".forkd.localhost":      anID,
		"80-" + short + ".forkd.localhost:8890": anID,
		"80-" + short + ".forkd.localhost.":     anID,
		"80-" + anID + ".forkd.localhost":       anID,
		"80-" + short + "-old.forkd.localhost":  anID,
		"49983-" + short + ".e2b.example":       anID,
		"80-other.forkd.localhost":              "other",
		"80-other.e2b.example":                  "",
		"80-" + short:                           "",
		short + ".forkd.localhost":              "",
		"":                                      "",
		"[::1]:80":                              "",
	} {
		if got := idOfHost(host, "forkd.localhost"); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}

// A name has a key only if it is an id with a key: anything else goes to any node.
func FuzzIDs(f *testing.F) {
	f.Add("80-sbgaytemzugu3doobzrsrnu.forkd.localhost", "/v1/sandboxes/"+anID)
	f.Add("80-x-y.forkd.localhost", "/sandboxes/%2e%2e/x")
	f.Fuzz(func(t *testing.T, host, path string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		if u, err := url.Parse("http://h" + path); err == nil {
			r.URL = u
		}
		to := targetOf(r, "forkd.localhost")
		if key := sandbox.NodeKeyIn(to.id); key != "" && !sandbox.ValidID(to.id) {
			t.Errorf("host %q, path %q: %q has the key %q", host, path, to.id, key)
		}
		if to.kind.String() == "" {
			t.Error("a kind without a name")
		}
	})
}
