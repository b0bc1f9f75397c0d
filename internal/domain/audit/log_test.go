package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writtenLog opens a log with small files, adds entries, and closes it.
func writtenLog(t *testing.T, path string, add func(*Log)) {
	t.Helper()
	l, err := Open(Config{Path: path, MaxBytes: 16 << 10, Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	add(l)
	if err := l.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
}

func report(t *testing.T, path string, known ...Head) Report {
	t.Helper()
	r, err := Verify(context.Background(), path, known...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEntriesGoToTheirWriter(t *testing.T) {
	for _, c := range []struct {
		name string
		e    Entry
		want string
	}{
		{"the operator's change", Entry{Action: "key.create", Result: OK, Principal: "token"}, ""},
		{"the operator's failed change", Entry{Action: "key.create", Result: Failed}, ""},
		{"the operator's read", Entry{Action: "key.read", Result: OK, Read: true}, "activity"},
		{"the operator's refused change", Entry{Action: "key.create", Result: Refused}, "activity"},
		{"a tenant's change", Entry{Action: "sandbox.fork", Result: OK, Tenant: "acme"}, "tenant-acme"},
		{"a tenant's read", Entry{Action: "sandbox.read", Result: OK, Tenant: "acme", Read: true}, "tenant-acme.activity"},
		{"a guest's fork", Entry{Action: "sandbox.fork", Result: OK, Tenant: "acme", Principal: "guest"}, "tenant-acme.activity"},
		{"an act of the operator's guest", Entry{Action: "network.denied", Result: Refused, Principal: "forkd-net"}, "activity"},
		{"use of a sandbox's token", Entry{Action: "process.start", Result: OK, Tenant: "acme", Principal: sandboxToken},
			"tenant-acme.activity"},
		{"a refused stranger", Entry{Action: "sandbox.kill", Result: Refused, Anonymous: true, Sandbox: "sb-1"}, "anonymous"},
		{"a stranger with a tenant's name", Entry{Action: "none", Result: Refused, Anonymous: true, Tenant: "acme"}, "anonymous"},
		{"traffic to a sandbox", Entry{Action: "port.request", Result: OK, Anonymous: true, Sandbox: "sb-1"}, "traffic"},
		{"a name that is no tenant's", Entry{Action: "sandbox.fork", Result: OK, Tenant: "../x"}, "tenant-X"},
	} {
		got := chainOf(c.e)
		if got != c.want && (c.want != "tenant-X" || !strings.HasPrefix(got, c.want)) || got != "" && !chainName.MatchString(got) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Many sources with many kinds of requests produce a limited number of lines, and all requests are counted.
func TestAnonymousRequestsAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	const sources, each = 500, 20
	writtenLog(t, path, func(l *Log) {
		l.Add(Entry{Action: "key.create", Result: OK})
		for i := range sources * each {
			l.Add(Entry{Action: fmt.Sprint("a", i%each), Result: Refused, Anonymous: true, Source: fmt.Sprint(i / each),
				Path: strings.Repeat("/", 500)})
		}
	})
	all, counted := 0, 0
	err := Read(t.Context(), path, Query{}, func(_ []byte, e Entry) error {
		if e.Anonymous {
			all, counted = all+1, counted+max(1, e.Count)
		}
		return nil
	})
	if err != nil || counted != sources*each || all > 2*maxAnonymous {
		t.Errorf("%d lines count %d requests, want %d in at most %d lines; %v", all, counted, sources*each, 2*maxAnonymous, err)
	}
	if r := report(t, path); r.Status != Whole || r.Chains[0].Lines < 3 {
		t.Errorf("got %+v", r)
	}
}

// A log that removed changes reports them, with the time. A recorded head in the removed part is no longer in the
// chain.
func TestDroppedChangesAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	writtenLog(t, path, func(l *Log) {
		for i := range 300 {
			l.Add(Entry{Action: "sandbox.fork", Result: OK, Tenant: "acme", Object: strings.Repeat("x", 200), Count: i})
		}
	})
	r := report(t, path)
	if !r.OK || r.Status != Gone || r.Dropped != 0 {
		t.Errorf("got %+v", r)
	}
	for _, c := range r.Chains {
		if c.Chain == "tenant-acme" {
			before, after := Head{c.Chain, c.Dropped - 1, Zero}, Head{c.Chain, c.Dropped, Zero}
			if r := report(t, path, before); r.Status != Gone {
				t.Errorf("with an earlier head: %s", r.Status)
			}
			if r := report(t, path, after); r.Status != Whole {
				t.Errorf("with the head of the last line that was dropped: %s", r.Status)
			}
		}
		if gone := c.Chain == "tenant-acme"; gone != (c.Dropped > 0) || gone != (c.Since != nil) || gone && c.First != c.Dropped+1 {
			t.Errorf("got %+v", c)
		}
	}
}

// Removing or truncating one chain is detected, even if all of its files are removed.
func TestAChangedChainShows(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"its file is gone": func(path string) error { return os.Remove(path) },
		"it is gone":       func(path string) error { return os.Remove(path) },
		"its head is gone": func(path string) error { return os.Remove(path + headSuffix) },
		"it is cut":        func(path string) error { return os.Truncate(path, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			writtenLog(t, path, func(l *Log) {
				l.Add(Entry{Action: "sandbox.fork", Result: OK, Tenant: "acme"})
				l.Add(Entry{Action: "sandbox.kill", Result: OK, Tenant: "acme"})
			})
			noted := report(t, path).Chains[1].Last
			if got, err := ParseHead(noted.String()); err != nil || got != noted || noted.Chain != "tenant-acme" {
				t.Fatalf("%s is %+v, %v", noted, got, err)
			}
			if r := report(t, path, noted); !r.OK {
				t.Fatalf("before: %+v", r)
			}
			chain := pathOf(path, "tenant-acme")
			err := change(chain)
			if name == "it is gone" && err == nil {
				err = os.Remove(chain + headSuffix)
			}
			if err != nil {
				t.Fatal(err)
			}
			if r := report(t, path); r.OK || r.Status != Changed {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// A follower also follows chains that are created meanwhile.
func TestFollowingNewChains(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	ctx, enough := context.WithCancel(t.Context())
	began, seen := make(chan struct{}), map[string]int{}
	ended := make(chan error, 1)
	go func() {
		ended <- Read(ctx, path, Query{Follow: true}, func(_ []byte, e Entry) error {
			if e.Action == ActionOpened {
				close(began)
			}
			if seen[e.Chain]++; seen["tenant-acme"] == 1 && seen["anonymous"] == 1 {
				enough()
			}
			return nil
		})
	}()
	<-began
	l.Add(Entry{Action: "sandbox.fork", Result: OK, Tenant: "acme"})
	l.Add(Entry{Action: "none", Result: Refused, Anonymous: true})
	if err := <-ended; err != context.Canceled {
		t.Error(err)
	}
	if err := l.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
}

// Tenants beyond the limit share a chain.
func TestManyTenants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	writtenLog(t, path, func(l *Log) {
		for i := range maxTenants + 20 {
			l.Add(Entry{Action: "sandbox.fork", Result: OK, Tenant: fmt.Sprint("t", i)})
		}
	})
	r := report(t, path)
	if !r.OK || len(r.Chains) != maxTenants+2 {
		t.Errorf("%d chains, %+v", len(r.Chains), r.Problems)
	}
}

// A log with several chains in the golden file must stay readable forever.
func TestGoldenChains(t *testing.T) {
	dir := filepath.Join("testdata", "chains")
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		now := began
		l, err := Open(Config{Path: filepath.Join(dir, "audit.log"), Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		l.Add(Entry{Action: "key.create", Result: OK, Request: "00112233445566aa", Principal: "token", Status: 201})
		l.Add(Entry{Action: "sandbox.fork", Result: OK, Request: "00112233445566ab", Tenant: "acme", Key: "k1", KeyName: "ci"})
		l.Add(Entry{Action: "sandbox.read", Result: OK, Request: "00112233445566ac", Tenant: "acme", Key: "k1", Read: true})
		for range 3 {
			l.Add(Entry{Action: "sandbox.kill", Result: Refused, Request: "00112233445566ad", Principal: "anonymous",
				Anonymous: true, Claim: "key", Source: "192.0.2.1", Status: 401})
		}
		if err := l.Close(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	r := report(t, filepath.Join(dir, "audit.log"))
	if !r.OK || r.Status != Whole || len(r.Chains) != 4 || r.Chains[2].Chain != "tenant-acme" || r.Chains[1].Counted != 2 {
		t.Errorf("got %+v", r)
	}
}

func FuzzParseHead(f *testing.F) {
	f.Add("7:" + Zero)
	f.Add("tenant-acme.activity:7:" + Zero)
	f.Add("::")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseHead(text)
		if err != nil {
			return
		}
		if again, err := ParseHead(h.String()); err != nil || again != h {
			t.Errorf("%q is %v, and that is %v, %v", text, h, again, err)
		}
	})
}
