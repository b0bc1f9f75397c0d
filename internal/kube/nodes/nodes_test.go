package nodes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

const good = `
- name: node-a
  uid: 9f3c1c0e-6d0a-4a52-9d38-0a8f6b1c2d3e
  url: https://10.0.0.1:8889
  token-file: /etc/forkd/gateway.key
  ca-file: /etc/forkd/ca.pem
- {name: node-b, url: "http://[::1]:8889/", token-file: t}
`

func TestAListOfNodes(t *testing.T) {
	list, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	want := Entry{Name: "node-a", UID: "9f3c1c0e-6d0a-4a52-9d38-0a8f6b1c2d3e", URL: "https://10.0.0.1:8889",
		TokenFile: "/etc/forkd/gateway.key", CAFile: "/etc/forkd/ca.pem"}
	if len(list) != 2 || list[0] != want || list[0].Key() != "rsrnu" || list[1].Key() != sandbox.NodeKeyOf("node-b") {
		t.Errorf("%+v", list)
	}
}

func TestInvalidLists(t *testing.T) {
	for text, want := range map[string]string{
		"":   "empty",
		"[]": "empty",
		"- {name: A, url: http://h, token-file: t}":              "node 1 (A): name: want lowercase",
		"- {name: a, uid: 'x y', url: http://h, token-file: t}":  "uid: want",
		"- {name: a, url: 'ftp://h', token-file: t}":             "url \"ftp://h\": want http://HOST:PORT",
		"- {name: a, url: 'http://u:p@h', token-file: t}":        "url",
		"- {name: a, url: 'http://h/path', token-file: t}":       "url",
		"- {name: a, url: 'http://:80', token-file: t}":          "url",
		"- {name: a, url: http://h}":                             "token-file is missing",
		"- {name: a, url: http://h, token-file: t, colour: red}": "colour",
		"{name: a}":                    "",
		strings.Repeat("#", maxFile+1): "bytes",
		good + "- {name: node-a, url: http://h, token-file: t}\n": "node-a stands twice",
		strings.Repeat("- {name: a}\n", maxNodes+1):               "1001 nodes",
		"- {name: a, url: http://h, token-file: t, name: b}":      "",
		"- &x {name: a, url: http://h, token-file: t}\n- *x\n":    "twice",
		"- {name: a, url: \"http://h\\n\", token-file: t}":        "url",
		"- {name: \"a\\u202e\", url: http://h, token-file: t}":    "name",
		"- {name: a, url: http://h?x=1, token-file: t}":           "url",
		"- {name: a, url: http://h, token-file: [t]}":             "",
		"- {name: a, uid: 12345678901234567890, url: http://h}":   "token-file",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
}

// Two UIDs with the same five digits of a key are found by trying.
func TestTwoNodesWithTheSameKey(t *testing.T) {
	seen := map[sandbox.NodeKey]string{}
	for i := 0; ; i++ {
		uid := fmt.Sprint("uid-", i)
		key := sandbox.NodeKeyOf(uid)
		other, found := seen[key]
		if !found {
			seen[key] = uid
			continue
		}
		text := fmt.Sprintf("- {name: first, uid: %s, url: http://h, token-file: t}\n"+
			"- {name: second, uid: %s, url: http://i, token-file: t}\n", other, uid)
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), "nodes first and second have the same key "+string(key)) {
			t.Errorf("%v", err)
		}
		return
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("- {name: a, url: http://h, token-file: t}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := Parse(text)
		if err != nil {
			return
		}
		keys := map[sandbox.NodeKey]bool{}
		for _, e := range list {
			if keys[e.Key()] || e.Name == "" || e.TokenFile == "" {
				t.Errorf("accepted %+v", list)
			}
			keys[e.Key()] = true
			if _, err := newNode(Entry{Name: e.Name, URL: e.URL}); err != nil {
				t.Errorf("%+v: %v", e, err)
			}
		}
	})
}

func TestAChangedFileIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes")
	write := func(text string) {
		if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+"~", path); err != nil {
			t.Fatal(err)
		}
	}
	write(good)
	type change struct {
		n   int
		err error
	}
	changes := make(chan change)
	go File{path, time.Millisecond}.Run(t.Context(), func(list []Entry, err error) {
		select {
		case changes <- change{len(list), err}:
		case <-t.Context().Done():
		}
	})
	if c := <-changes; c.n != 2 || c.err != nil {
		t.Errorf("at first: %+v", c)
	}
	write("- {name: only, url: http://h, token-file: t}")
	if c := <-changes; c.n != 1 || c.err != nil {
		t.Errorf("changed: %+v", c)
	}
	write("- {name: only}")
	if c := <-changes; c.err == nil || !strings.Contains(c.err.Error(), path) {
		t.Errorf("invalid: %+v", c)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if c := <-changes; !os.IsNotExist(c.err) {
		t.Errorf("removed: %+v", c)
	}
	write("- {name: only, url: http://h, token-file: t}")
	if c := <-changes; c.n != 1 || c.err != nil {
		t.Errorf("restored: %+v", c)
	}
}

func TestIdentities(t *testing.T) {
	n, err := newNode(Entry{Name: "a", UID: "u", URL: "http://h"})
	if err != nil {
		t.Fatal(err)
	}
	key := string(sandbox.NodeKeyOf("u"))
	for want, f := range map[string]api.Node{
		"":                   {Name: "a", UID: "u", Key: key},
		"have no key":        {Name: "a", UID: "u"},
		`node "b"`:           {Name: "b", UID: "u", Key: key},
		`UID "v"`:            {Name: "a", UID: "v", Key: key},
		`key "aaaaa"`:        {Name: "a", UID: "u", Key: "aaaaa"},
		`UID "" and key "a"`: {Key: "a"},
	} {
		err := n.identity(f)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
}

func TestFactsForTheBoard(t *testing.T) {
	f := board("a", api.Node{Admits: api.AdmitsAll, Memory: api.Resource{Total: 16 << 30, Reserve: 1 << 30, Free: 5 << 30},
		Disk: api.Resource{Total: 100, Free: 20}, Pools: []api.NodePool{{Tag: "py", Ready: 3}}, Truncated: true,
		Snapshots: []api.NodeSnapshot{{Tag: "py", Bytes: 9, Running: 1}, {Tag: "acme-x", Owner: "acme"},
			{Tag: "zeta-py", Owner: "zeta"}, {Tag: "-", Owner: ""}}}, time.Unix(1, 0))
	if f.Capacity != 15<<10 || f.Used != 10<<10 || f.DiskFree != 0.2 || f.Draining || !f.More {
		t.Errorf("%+v", f)
	}
	if p := f.Snapshots["py"]; p.Prepared != 3 || !p.Running || p.Bytes != 9 || len(f.Snapshots) != 5 {
		t.Errorf("%+v", f.Snapshots)
	}
	if _, ok := f.Snapshots["x"]; !ok {
		t.Error("a tenant's own name for its snapshot is missing")
	}
	if f := board("a", api.Node{Admits: api.AdmitsNone}, time.Time{}); !f.Draining {
		t.Error("a node that admits no VM gets sandboxes")
	}
}
