package sandboxes_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/sys/durable"
)

// withoutPorts removes the fields an older daemon without PublicPorts never wrote from a sandbox's
// record.
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

// A sandbox is public only if its record says so. A record of an earlier daemon makes it private,
// running or paused, and later daemons require the same token.
func TestARecordThatDoesNotSayPublicIsClosed(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := h.Fork(e, "a", 4)
	runs, sleeps, stays, staysAsleep := sbs[0], sbs[1], sbs[2], sbs[3]
	h.Pause(e, sleeps.ID)
	h.Pause(e, staysAsleep.ID)
	dir := filepath.Dir(h.JournalOf(runs.PID))
	h.Close(e)
	withoutPorts(t, filepath.Join(dir, vmproc.SandboxJournal))
	withoutPorts(t, filepath.Join(h.Cfg.StoreDir, "paused", sleeps.ID+".json"))
	tokens := map[string]string{}
	for range 2 {
		e = h.Open()
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
		h.Close(e)
	}
	e = h.Open()
	if got := h.Resume(e, sleeps.ID); got.PublicPorts || got.TrafficToken != tokens[sleeps.ID] {
		t.Errorf("a resume changes the rule to %+v", got.PortAccess())
	}
	if got := h.Resume(e, staysAsleep.ID); !got.PublicPorts {
		t.Errorf("a resume changes the rule of a public sandbox to %+v", got.PortAccess())
	}
	if err := h.Branch(e, runs.ID, "b"); err != nil {
		t.Fatal(err)
	}
	if child := h.Fork(e, "b", 1)[0]; child.PublicPorts || child.TrafficToken == "" || child.TrafficToken == tokens[runs.ID] {
		t.Errorf("a fork of its branch has the rule %+v", child.PortAccess())
	}
}

// If a manifest does not mark ports as public, its sandboxes require a token.
func TestASnapshotThatDoesNotSayPublicIsClosed(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	if sb := h.Fork(e, "a", 1)[0]; !sb.PublicPorts {
		t.Fatal("a snapshot of an image has private ports")
	}
	h.Close(e)
	path := filepath.Join(h.Cfg.StoreDir, "snapshots", "a", snapshot.ManifestFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.Replace(b, []byte(`"public_ports": true,`), []byte(`"private_ports": false,`), 1)
	if bytes.Equal(old, b) {
		t.Fatalf("the manifest does not say that ports are public: %s", b)
	}
	if err := durable.Replace(path, old); err != nil {
		t.Fatal(err)
	}
	e = h.Open()
	if sb := h.Fork(e, "a", 1)[0]; sb.PublicPorts || len(sb.TrafficToken) != 64 {
		t.Errorf("a sandbox of a manifest without public_ports is %+v", sb)
	}
}
