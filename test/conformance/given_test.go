package conformance

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/test/harness"
)

//go:embed guest/given.py
var givenProgram string

// givenColumns are things that a request gives to a sandbox. They are no memory, so each operation has to decide
// about them.
var givenColumns = []string{"volume", "secret", "identity", "network", "service"}

// given is a run with one source that has everything.
type given struct {
	*suite
	table  table
	peer   string // another member of the source's private network
	source string
	mount  api.VolumeMount
	secret string // its name
	value  string // its current value
	net    string

	pid int // of the source's service
}

// issues are the settings of a daemon with secrets, identity tokens and private networks.
func issues(t *testing.T) func(*harness.Daemon) error {
	return func(d *harness.Daemon) error {
		key := filepath.Join(d.Dir, "key")
		if out, err := exec.CommandContext(t.Context(), d.Forkd(), "secret", "generate-key", key).CombinedOutput(); err != nil {
			return fmt.Errorf("make a key: %w: %s", err, out)
		}
		d.Flags = append(d.Flags, "--secrets-key", key, "--identity-issuer", "http://127.0.0.1:9")
		return d.WithNet(t)
	}
}

// TestWhatASandboxWasGiven checks what each way to another sandbox does with a volume, a secret, identity tokens, a
// private network and a service of the source.
func TestWhatASandboxWasGiven(t *testing.T) {
	g := &given{suite: newSuite(t, issues(t)), table: table{columns: givenColumns}}
	g.mount = api.VolumeMount{Name: g.name, Path: "/data"}
	g.secret, g.net, g.value = strings.ReplaceAll(g.name, "-", "_"), g.name, "first-value"
	t.Cleanup(g.remove)
	t.Cleanup(g.clean)
	t.Cleanup(func() { t.Logf("\n%s", g.table.text()) })
	g.make()
	for _, row := range []struct {
		name string
		run  func(*cells)
	}{
		{"fork", g.forkRow}, {"plain fork", g.plainRow}, {"branch", g.branchRow},
		{"guest's fork", g.guestRow}, {"rollback", g.rollbackRow}, {"pause and resume", g.pauseRow},
		{"promote", g.promoteRow},
	} {
		ok := t.Run(row.name, func(t *testing.T) {
			g.t = t
			cells := g.table.row(row.name)
			row.run(cells)
			cells.settle(t)
		})
		if g.t = t; !ok && g.source == "" {
			t.Fatal("without a fork there is no source for what follows")
		}
	}
}

// make makes the objects and the snapshot.
func (g *given) make() {
	g.t.Helper()
	ctx := g.t.Context()
	if _, err := g.c.Volumes().Create(ctx, api.CreateVolumeRequest{Name: g.mount.Name, SizeMiB: 64}); err != nil {
		g.t.Fatal(err)
	}
	g.set(g.value)
	if _, err := g.c.PrivateNetworks().Create(ctx, g.net); err != nil {
		g.t.Fatal(err)
	}
	g.tag = g.newTag()
	req := api.CreateSnapshotRequest{Tag: g.tag, Image: image(), Warm: givenProgram}
	if _, err := g.c.CreateSnapshot(ctx, req, nil); err != nil {
		g.t.Fatalf("create the parent from image %s: %v; %s", req.Image, err, hint)
	}
	g.snapshots = append(g.snapshots, g.tag)
}

// set gives the secret a value.
func (g *given) set(value string) {
	g.t.Helper()
	if _, err := g.c.Secrets().Set(g.t.Context(), g.secret, api.SetSecretRequest{Value: value}); err != nil {
		g.t.Fatalf("set a secret: %v; the runtime needs --secrets-key and --identity-issuer", err)
	}
	g.value = value
}

// remove removes the objects, which no sandbox has any more.
func (g *given) remove() {
	ctx := context.Background()
	for _, err := range []error{
		g.c.Volumes().Remove(ctx, g.mount.Name), g.c.Secrets().Remove(ctx, g.secret),
		g.c.PrivateNetworks().Remove(ctx, g.net),
	} {
		if err != nil && !client.IsNotFound(err) {
			g.t.Error(err)
		}
	}
}

// one makes one sandbox.
func (g *given) one(req api.CreateSandboxesRequest) string {
	g.t.Helper()
	n := 1
	req.SnapshotTag, req.N, req.Net = g.tag, &n, api.NetNone
	res, err := g.c.Fork(g.t.Context(), req)
	if err != nil {
		g.t.Fatal(err)
	}
	return g.ids(res.Sandboxes, n)[0]
}

// counter is a service that writes its process and the next number.
const counter = "import os, time\nn = 0\nwhile True:\n\tprint(os.getpid(), n)\n\tn += 1\n\ttime.sleep(0.2)"

// forkRow makes the peer and the source, which is the fork of this row.
func (g *given) forkRow(cells *cells) {
	g.peer = g.one(api.CreateSandboxesRequest{NetJoin: &api.NetJoin{Network: g.net, Alias: "peer"}})
	g.eval(g.peer, "serve()")
	id := g.one(api.CreateSandboxesRequest{
		Volumes: []api.VolumeMount{g.mount}, Secrets: []api.SecretRef{{Name: g.secret, Env: "GIVEN"}}, Identity: true,
		GuestFork: true, NetJoin: &api.NetJoin{Network: g.net, Alias: "source"},
		Services: []api.NamedService{{Name: "counter", ServiceSpec: api.ServiceSpec{Command: []string{"python3", "-u", "-c", counter}}}},
	})
	g.shell(id, "echo first > /data/file; setsid sleep 86400 >/dev/null 2>&1 </dev/null & echo $! > /tmp/old")
	g.eval(id, `dial("peer.forkd.internal")`)
	g.pid = g.service(id).PID
	g.source = id
	g.wants(cells, id, g.everything("first"))
	_, err := g.c.Fork(g.t.Context(), api.CreateSandboxesRequest{SnapshotTag: g.tag, Volumes: []api.VolumeMount{g.mount}})
	if client.ReasonOf(err) != api.ReasonVolumeHeld {
		cells.wrong("volume", "another sandbox can have it, too: %v", err)
	}
}

// plainRow forks the snapshot again.
func (g *given) plainRow(cells *cells) {
	id := g.one(api.CreateSandboxesRequest{})
	g.wants(cells, id, possessions{volume: "absent", secret: "absent", identity: "denied", network: "alone",
		connection: "none", service: "absent"})
	g.kill(id)
}

// branchRow makes a child of the source, and a child of that child.
func (g *given) branchRow(cells *cells) {
	g.shell(g.source, "echo second > /data/file") // in the page cache only
	child := g.branch(g.source, api.BranchRequest{Tag: g.newTag(), Mode: api.BranchLive, N: 1})[0]
	g.shell(g.source, "echo third > /data/file; sync")
	g.wants(cells, child, g.clone("second"))
	g.shell(child, "echo of-the-child > /data/file") // in the page cache only
	grandchild := g.branch(child, api.BranchRequest{Tag: g.newTag(), Mode: api.BranchDiff, N: 1})[0]
	g.wants(cells, grandchild, g.clone("of-the-child"))
	g.shell(grandchild, "echo of-the-grandchild > /data/file; sync")
	g.wants(cells, child, g.clone("of-the-child"))
	g.wants(cells, g.source, g.everything("third"))
	g.kill(grandchild, child)
}

// guestRow lets the source fork itself.
func (g *given) guestRow(cells *cells) {
	g.shell(g.source, "echo fourth > /data/file")
	out := strings.Fields(g.shell(g.source, "forkd-fork 1"))
	if len(out) != 2 {
		g.t.Fatalf("forkd-fork printed %q", out)
	}
	child := out[1]
	g.sandboxes = append(g.sandboxes, child)
	want := g.clone("fourth")
	want.identity, want.parent = "its own", g.source
	g.wants(cells, child, want)
	g.shell(child, "echo of-the-child > /data/file; sync")
	g.wants(cells, g.source, g.everything("fourth"))
	g.kill(child)
}

// rollbackRow rolls the source back over a rotation of the secret, a write and a stop of the service.
func (g *given) rollbackRow(cells *cells) {
	tag := g.newTag()
	g.shell(g.source, "echo fifth > /data/file")
	g.branch(g.source, api.BranchRequest{Tag: tag})
	g.change("second-value", "sixth")
	if _, err := g.c.Rollback(g.t.Context(), g.source, tag); err != nil {
		g.t.Fatal(err)
	}
	want := g.everything("fifth")
	want.snapshot, want.connection = tag, "reset"
	want.memory = "first-value"
	g.wants(cells, g.source, want)
	g.reconnect()
}

// change rotates the secret, writes to the volume and stops the service.
func (g *given) change(value, content string) {
	g.t.Helper()
	g.set(value)
	g.shell(g.source, "echo "+content+" > /data/file; sync")
	if _, err := client.ServicesOf(g.c, g.source).Change(g.t.Context(), "counter", "stop"); err != nil {
		g.t.Fatal(err)
	}
}

func (g *given) reconnect() {
	g.t.Helper()
	g.eval(g.source, `dial("peer.forkd.internal")`)
}

// pauseRow pauses the source and resumes it. In between the others find nothing of it.
func (g *given) pauseRow(cells *cells) {
	ctx, life := g.t.Context(), client.Life{Client: g.c}
	g.shell(g.source, "echo seventh > /data/file")
	was := g.claims(g.source)
	if _, err := life.Pause(ctx, g.source, api.PauseRequest{}); err != nil {
		g.t.Fatal(err)
	}
	_, err := g.c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: g.tag, Volumes: []api.VolumeMount{g.mount}})
	if client.ReasonOf(err) != api.ReasonVolumeHeld {
		cells.wrong("volume", "another sandbox can have it while its own is paused: %v", err)
	}
	if g.resolves(g.peer, "source") {
		cells.wrong("network", "a paused sandbox is found")
	}
	_, err = g.c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: g.tag, Net: api.NetNone,
		NetJoin: &api.NetJoin{Network: g.net, Alias: "source"}})
	if err == nil {
		cells.wrong("network", "another sandbox can have the alias of a paused one")
	}
	g.set("third-value")
	if _, err := life.Resume(ctx, g.source); err != nil {
		g.t.Fatal(err)
	}
	want := g.everything("seventh")
	want.connection, want.memory, want.snapshot = "reset", "first-value", was.Snapshot
	g.wants(cells, g.source, want)
	g.reconnect()
}

// promoteRow puts a child in the place of the source.
func (g *given) promoteRow(cells *cells) {
	child := g.branch(g.source, api.BranchRequest{Tag: g.newTag(), N: 1})[0]
	g.shell(child, "echo eighth > /data/file")
	g.change("fourth-value", "lost")
	req := api.PromoteRequest{Parent: api.PromoteKill, Place: g.source}
	if _, err := client.Promote(g.t.Context(), g.c, child, req); err != nil {
		g.t.Fatal(err)
	}
	want := g.everything("eighth")
	want.connection, want.memory, want.snapshot = "reset", "first-value", ""
	g.wants(cells, g.source, want)
}

// everything is what the source has.
func (g *given) everything(content string) possessions {
	return possessions{volume: "its own", content: content, secret: "current value", memory: g.value,
		identity: "its own", snapshot: g.tag, network: "member", connection: "open", service: "continues"}
}

// clone is what a child of a branch has.
func (g *given) clone(content string) possessions {
	return possessions{volume: "a clone", content: content, secret: "in memory only", memory: g.value,
		identity: "denied", network: "alone", connection: "reset", service: "continues"}
}

// resolves reports whether a member finds another one.
func (g *given) resolves(id, alias string) bool {
	g.t.Helper()
	return strings.TrimSpace(g.eval(id, fmt.Sprintf("print(resolves(%q))", alias+".forkd.internal"))) == "True"
}
