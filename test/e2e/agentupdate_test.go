package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// agedStart is a program of the snapshot: it has an open file that was deleted, a variable, and a
// count that goes on.
const agedStart = `export COLOUR=blue; exec 9<>/tmp/held; rm /tmp/held; echo "from the deleted file" >&9; mkdir /tmp/www; ` +
	`echo from the service >/tmp/www/page; httpd -p 127.0.0.1:8080 -h /tmp/www; ` +
	`i=0; while :; do i=$((i+1)); echo $i >/tmp/count; sleep 0.05; done`

// agedSnapshot makes a snapshot with an agent that lacks services and identity tokens, and can be
// replaced.
func (d *daemon) agedSnapshot(tag string) {
	d.t.Helper()
	err := harness.PutSmallImage(d.t, d.images(), tag, harness.SmallImage{Start: agedStart,
		Ready: &image.Ready{Port: 8080}, Initrd: kvmtest.Fixture(d.t, "aged-agent.cpio")})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.c.CreateSnapshot(d.t.Context(), api.CreateSnapshotRequest{Tag: tag, Image: tag}, nil); err != nil {
		d.t.Fatal(err)
	}
}

// agedPID is the process of agedStart in a child, with its start time: the same process has both.
func (d *daemon) agedPID(id string) string {
	return d.sh(id, `for p in /proc/[0-9]*; do if [ "$(readlink $p/fd/9)" = "/tmp/held (deleted)" ]; then `+
		`echo ${p#/proc/} $(cut -d" " -f22 $p/stat); fi; done | head -n 1`)
}

func webService() []api.NamedService {
	return []api.NamedService{{Name: "web", ServiceSpec: api.ServiceSpec{
		Command: []string{"sh", "-c", "echo up; while :; do sleep 1; done"}}}}
}

// A snapshot with an old agent is forked under today's daemon with services. Its programs live
// through the update of the agent.
func TestAnOldAgentIsReplaced(t *testing.T) {
	kvmtest.Soak(t)
	d := secondDaemon(t, "--identity-timeout", "2m")
	d.start()
	d.agedSnapshot("aged")
	one := 1
	old := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "aged", N: &one}).OK()[0].ID
	before := d.agedPID(old)
	if before == "" {
		t.Fatal("the program of the snapshot does not run")
	}
	if got := d.sh(old, "/run/forkd/forkd-agent --version"); !strings.HasSuffix(got, "0.0.9-aged") {
		t.Errorf("a fork that needs no more has the agent %q", got)
	}

	n := 2
	children := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "aged", N: &n, Services: webService()})
	for _, sb := range children.Failed() {
		t.Fatalf("child %d: %s", sb.Index, sb.Error)
	}
	for _, sb := range children.OK() {
		t.Logf("child %d was ready after %v ms", sb.Index, sb.Timings.ReadyMS)
		d.lives(sb.ID, before)
		d.serves(sb.ID)
		if got := d.sh(sb.ID, "/run/forkd/forkd-agent --version"); strings.HasSuffix(got, "-aged") {
			t.Errorf("the agent's program is still %q", got)
		}
	}
	// A branch and a pause have the new agent, so nothing is replaced again.
	first := children.OK()[0].ID
	if _, err := d.c.Branch(t.Context(), first, api.BranchRequest{Tag: "aged-branch"}); err != nil {
		t.Fatal(err)
	}
	grand := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "aged-branch", N: &one, Services: webService()}).OK()
	if len(grand) != 1 {
		t.Fatal("the branch could not be forked")
	}
	d.lives(grand[0].ID, before)
	d.serves(grand[0].ID)
	if _, err := d.life().Pause(t.Context(), first, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.life().Resume(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	d.lives(first, before)
	d.serves(first)
}

// lives checks that a child's programs of the snapshot run on.
func (d *daemon) lives(id, was string) {
	d.t.Helper()
	if got := d.agedPID(id); got != was {
		d.t.Errorf("%s: the program is %q, was %q", id, got, was)
	}
	pid, _, _ := strings.Cut(was, " ")
	if got := d.sh(id, "cat /proc/"+pid+"/fd/9; tr '\\0' '\\n' </proc/"+pid+"/environ | grep -c HANDOVER || true"); got != "from the deleted file\n0" {
		d.t.Errorf("%s: its open file and environment have %q", id, got)
	}
	count := d.sh(id, "cat /tmp/count")
	eventually(d.t, "progress of the program", func() bool { return d.sh(id, "cat /tmp/count") != count })
	if got := d.page(id, 8080, "/page"); got != "from the service\n" {
		d.t.Errorf("%s: its server answers %q", id, got)
	}
}

// serves checks that the service runs and is supervised.
func (d *daemon) serves(id string) {
	d.t.Helper()
	pid := 0
	ready := func() bool {
		l, err := client.ServicesOf(d.c, id).List(d.t.Context(), 0)
		if err != nil {
			d.t.Fatal(err)
		}
		if len(l) != 1 || l[0].State != "ready" || l[0].PID == pid {
			return false
		}
		pid = l[0].PID
		return true
	}
	eventually(d.t, "ready service", ready)
	d.sh(id, fmt.Sprintf("kill -9 %d", pid))
	eventually(d.t, "restarted service", ready)
}

// A derived snapshot has the new agent for good.
func TestADerivedSnapshotIsUpdated(t *testing.T) {
	kvmtest.Soak(t)
	d := secondDaemon(t, "--identity-timeout", "2m")
	d.start()
	d.agedSnapshot("aged")
	code, _, errs := d.cli("snapshot", "create", "--tag", "renewed", "--from", "aged", "--exec", "true")
	if code != 0 {
		t.Fatal(errs)
	}
	n := 8
	took := map[string]time.Duration{}
	for _, tag := range []string{"aged", "renewed"} {
		began := time.Now()
		r := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: tag, N: &n, Services: webService()})
		took[tag] = time.Since(began)
		for _, sb := range r.Failed() {
			t.Errorf("%s: child %d: %s", tag, sb.Index, sb.Error)
		}
		for _, sb := range r.OK() {
			if err := d.c.Kill(context.Background(), sb.ID); err != nil && !client.IsNotFound(err) {
				t.Error(err)
			}
		}
	}
	t.Logf("fork of %d: %v with an update in each child, %v without", n, took["aged"], took["renewed"])
}

// Neither a damaged program nor the daemon's death in the middle of an update harms more than the
// children under way.
func TestAnUpdateThatFails(t *testing.T) {
	kvmtest.Soak(t)
	d := secondDaemon(t, "--identity-timeout", "2m")
	d.start()
	d.agedSnapshot("aged")
	whole, err := os.ReadFile(filepath.Join(d.Bin, "forkd-agent"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		t.Helper()
		part := filepath.Join(d.Bin, "part")
		if err := os.WriteFile(part, b, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(part, filepath.Join(d.Bin, "forkd-agent")); err != nil {
			t.Fatal(err)
		}
	}
	n := 1
	put(whole[:len(whole)/2])
	r, err := d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "aged", N: &n, Services: webService()})
	text := fmt.Sprint(err)
	for _, sb := range r.Failed() {
		text += sb.Error
	}
	if len(r.OK()) != 0 || !strings.Contains(text, "the program does not") {
		t.Errorf("half a program: %d children, %s", len(r.OK()), text)
	}
	put(whole)

	n = 8
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = d.c.Fork(context.Background(), api.CreateSandboxesRequest{SnapshotTag: "aged", N: &n, Services: webService()})
	}()
	time.Sleep(600 * time.Millisecond) // elapses: the children are in the middle of it
	d.end(syscall.SIGKILL)
	<-done
	d.start()
	n = 2
	ok := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "aged", N: &n, Services: webService()}).OK()
	if len(ok) != n {
		t.Fatalf("%d children after the restart, want %d", len(ok), n)
	}
	for _, sb := range ok {
		d.serves(sb.ID)
	}
}
