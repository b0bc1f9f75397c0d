package e2e

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// lasting lists, as Python, the values of a sandbox kept by a rollback.
var lasting = []string{
	"socket.gethostname()", "open('/etc/machine-id').read()",
	"os.environ['FORKD_SANDBOX_ID']", "os.environ['FORKD_INDEX']", "os.environ['FORKD_PARENT']", "os.environ['COLOUR']",
}

// bootID is new in each clone and after a rollback. A resume keeps it, because the same VM
// continues.
const bootID = "open('/proc/sys/kernel/random/boot_id').read()"

// fresh lists the values that must be new each time.
var fresh = []string{
	"os.urandom(16).hex()", "random.random()", "numpy.random.rand()",
	"numpy.random.default_rng().random()", "ssl.RAND_bytes(16).hex()", "str(uuid.uuid4())",
}

// A sandbox is rolled back to a snapshot of itself, and to its parent, in place.
func TestRollback(t *testing.T) {
	d := shared(t)
	d.unchanged()
	n := 2
	sbs := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, Env: map[string]string{"COLOUR": "red"}}).OK()
	id, sibling := sbs[1].ID, sbs[0].ID
	d.eval(id, startCounting)
	d.remember(id, "of then")
	d.branch(id, api.BranchRequest{Tag: "then"})
	d.remember(id, "of later")
	d.sh(id, "dd if=/dev/urandom of=/var/later bs=1M count=4 2>/dev/null; sync")
	ticks, same, seen := d.ticks(id), d.list(id, lasting...), d.list(id, append(fresh, bootID)...)
	vms := d.vmDirs()

	broken := d.streamInto(id)
	info := d.rollback(id, "then")
	if info.PID == nil || *info.PID == *sbs[1].PID || info.SnapshotTag != parentTag || info.Index != 2 || info.Status != api.SandboxRunning {
		t.Errorf("it is now %+v", info)
	}
	d.sub("its streams end", func(t *testing.T) {
		var e *client.Error
		if err := <-broken; !errors.As(err, &e) || e.Code != api.CodeGuestGone || !strings.Contains(err.Error(), "rolled back to snapshot then") {
			t.Errorf("the stream ended with %v", err)
		}
	})
	d.remembers(id, "of then")
	if got := d.sh(id, "ls /var/later 2>&1 || true"); !strings.Contains(got, "No such file") {
		t.Errorf("a file of later: %q", got)
	}
	if got := d.ticks(id); got > ticks+1000 {
		t.Errorf("it has counted to %d, to %d before it was put back", got, ticks)
	}
	d.counts(id)
	seen = d.sameButFresh(id, lasting, append(fresh, bootID), same, seen)
	d.tellsTheTime(id)

	// Later changes are on top of the snapshot.
	d.remember(id, "of now")
	res := d.branch(id, api.BranchRequest{Tag: "now", N: 1})
	if res.ParentTag == nil || *res.ParentTag != "then" {
		t.Errorf("the parent of what was branched is %v", res.ParentTag)
	}
	d.remembers(res.Children[0].ID, "of now")

	d.rollback(id, parentTag)
	if got := d.list(id, "'memory' in globals()", "os.path.exists('/home/user/memory')"); !slices.Equal(got, []string{"False", "False"}) {
		t.Errorf("memory and file are there: %q", got)
	}
	d.sameButFresh(id, lasting, append(fresh, bootID), same, seen)
	d.rollback(id, "now")
	d.remembers(id, "of now")
	if got := d.vmDirs(); len(got) != len(vms)+1 { // the branch's child
		t.Errorf("run directories are %q, they were %q", got, vms)
	}
	_, err := d.c.Rollback(t.Context(), sibling, "then")
	wantError(t, err, api.CodeConflict, parentTag, sibling)
	d.alive(sbs...)
	// The sandbox is killed before the snapshot below it.
	if err := d.c.Kill(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// tellsTheTime checks a sandbox's clock. The daemon sends the time with the identity, so the clock
// may be late by the time of the transfer.
func (d *daemon) tellsTheTime(id string) {
	d.t.Helper()
	allow := time.Second
	for _, s := range d.sandboxReceipt(id).Steps {
		if s.Name == "identity" {
			allow += time.Duration(s.TookMS * float64(time.Millisecond))
		}
	}
	before := time.Now()
	ns, err := strconv.ParseInt(d.eval(id, "time.time_ns()"), 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	if at := time.Unix(0, ns); at.Before(before.Add(-allow)) || at.After(time.Now().Add(time.Second)) {
		d.t.Errorf("its clock says %s, it is %s; %s are allowed", at, before, allow)
	}
}

func (d *daemon) rollback(id, tag string) api.SandboxInfo {
	d.t.Helper()
	info, err := d.c.Rollback(d.t.Context(), id, tag)
	if err != nil {
		d.t.Fatalf("roll %s back to %s: %v", id, tag, err)
	}
	if info.ID != id || info.RolledBackTo != tag {
		d.t.Errorf("%s was rolled back to %s: %+v", id, tag, info)
	}
	return info
}

// streamInto runs an endless program in a sandbox.
func (d *daemon) streamInto(id string) <-chan error {
	d.t.Helper()
	begun, w := io.Pipe()
	got := make(chan error, 1)
	go func() {
		_, err := d.c.ExecStream(d.t.Context(), id, client.ExecOptions{Args: []string{"sh", "-c", "echo begun; sleep 600"}, Stdout: w})
		w.CloseWithError(err)
		got <- err
	}()
	if _, err := io.ReadFull(begun, make([]byte, 6)); err != nil {
		d.t.Fatal(err)
	}
	return got
}

// sameButFresh compares the lasting values, and checks that no fresh value repeats.
func (d *daemon) sameButFresh(id string, lasting, fresh, same, seen []string) []string {
	d.t.Helper()
	all := d.list(id, append(slices.Clone(lasting), fresh...)...)
	if now := all[:len(lasting)]; !slices.Equal(now, same) {
		d.t.Errorf("it is %q, it was %q", now, same)
	}
	for i, v := range all[len(lasting):] {
		if slices.Contains(seen, v) {
			d.t.Errorf("%s is %q again", fresh[i], v)
		}
		seen = append(seen, v)
	}
	return seen
}
