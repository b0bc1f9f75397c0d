package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/durable"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/sandbox"
)

// withoutPorts removes from a record of a sandbox what a daemon that did not know PublicPorts never wrote.
func withoutPorts(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	var rec map[string]any
	if err == nil {
		err = json.Unmarshal(b, &rec)
	}
	if err != nil {
		t.Fatal(err)
	}
	info, _ := rec["info"].(map[string]any)
	if info["PublicPorts"] != true {
		t.Fatalf("the record of a public sandbox does not say so: %s", b)
	}
	delete(info, "PublicPorts")
	if b, err = json.Marshal(rec); err == nil {
		err = durable.Replace(path, b)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A sandbox is public only if its record says so. A record of an earlier daemon's closes it, whether it
// runs meanwhile or is paused, and later daemons ask for the same token.
func TestARecordThatDoesNotSayPublicIsClosed(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sbs := h.fork(e, "a", 4)
	runs, sleeps, stays, staysAsleep := sbs[0], sbs[1], sbs[2], sbs[3]
	h.pause(e, sleeps.ID)
	h.pause(e, staysAsleep.ID)
	dir := filepath.Dir(h.journalOf(runs.PID))
	h.close(e)
	withoutPorts(t, filepath.Join(dir, vmproc.SandboxJournal))
	withoutPorts(t, filepath.Join(h.cfg.StoreDir, "paused", sleeps.ID+".json"))
	tokens := map[string]string{}
	for range 2 {
		e = h.open()
		for _, id := range []string{runs.ID, sleeps.ID} {
			got, err := e.PortAccess(id, 80)
			if tokens[id] == "" {
				tokens[id] = got.Token
			}
			if err != nil || got.Public || len(got.Token) != 64 || got.Token != tokens[id] {
				t.Errorf("the rule of %s is %+v, %v; want the token %q", id, got, err, tokens[id])
			}
		}
		for _, id := range []string{stays.ID, staysAsleep.ID} {
			if got, err := e.PortAccess(id, 80); got != (sandbox.PortAccess{Public: true}) || err != nil {
				t.Errorf("the rule of %s, which is public, is %+v, %v", id, got, err)
			}
		}
		h.close(e)
	}
	e = h.open()
	if got := h.resume(e, sleeps.ID); got.PublicPorts || got.TrafficToken != tokens[sleeps.ID] {
		t.Errorf("a resume changes the rule to %+v", got.PortAccess())
	}
	if got := h.resume(e, staysAsleep.ID); !got.PublicPorts {
		t.Errorf("a resume changes the rule of a public sandbox to %+v", got.PortAccess())
	}
	if err := h.branch(e, runs.ID, "b"); err != nil {
		t.Fatal(err)
	}
	if child := h.fork(e, "b", 1)[0]; child.PublicPorts || child.TrafficToken == "" || child.TrafficToken == tokens[runs.ID] {
		t.Errorf("a fork of its branch has the rule %+v", child.PortAccess())
	}
}
