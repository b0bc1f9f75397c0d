package crash

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// The test kills forkd-spawn at steps that concern jailed VMs: steps of the daemon, of the VMM, and
// all those of forkd-spawn. Only a VM being started by forkd-spawn may be affected.
func TestKillsOfForkdSpawn(t *testing.T) {
	kvmtest.Drawn(t)
	random := kvmtest.Random(kvmtest.Seed(t), 1)
	w := newWorld(t, func(d *harness.Daemon) {
		d.Flags = append(d.Flags, "--jail", "strict")
	})
	var seen []failpoint.Step
	for _, op := range operations {
		var steps []failpoint.Step
		w.sub(op.name+" passes", func() { steps = w.watch(op) })
		for _, s := range steps {
			if slices.Contains(seen, s) || ofStores(s) {
				continue
			}
			seen = append(seen, s)
			if strings.HasPrefix(string(s), failpoint.SpawnPrefix) || chosen(random) {
				w.sub(op.name+" at "+string(s), func() { w.killSpawn(op, s) })
			}
		}
	}
	w.verified(parentTag)
	for _, s := range failpoint.Steps() {
		if !slices.Contains(seen, s) && !ofStores(s) && !strings.HasPrefix(string(s), "group.") && // see group_test.go
			!strings.HasPrefix(string(s), "move.") { // no VM is started
			t.Errorf("no operation passes %s", s)
		}
	}
}

// ofStores reports whether a step writes or removes files of the store. No VM is started during
// such a step. TestKills covers them, and steps of the collection happen at no fixed time.
func ofStores(s failpoint.Step) bool {
	return strings.HasPrefix(string(s), "layer.") || strings.HasPrefix(string(s), "snapshot.")
}

// killSpawn kills forkd-spawn while the operation is stopped at a step, and checks the result.
func (w *world) killSpawn(op operation, s failpoint.Step) {
	source := w.source(op)
	own := strings.HasPrefix(string(s), failpoint.SpawnPrefix)
	mark, ended := w.stand(op, s, source)
	killed := 0
	for _, pid := range w.d.SpawnProcesses() {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	w.eventually("end of forkd-spawn", func() bool { return len(w.d.SpawnProcesses()) == 0 })
	w.disarm(s)
	err := <-ended
	w.t.Logf("%d processes of forkd-spawn killed; the caller was told: %v", killed, err)
	// If forkd-spawn ended before the request, another instance serves it. A request under way is
	// lost.
	if err != nil && !own {
		w.t.Errorf("the operation failed: %v", err)
	}
	switch {
	case op.pauses:
		w.runsOrIsPaused(source.ID, mark)
	case op.back && err == nil:
		w.isOneOfTwo(source, mark)
	case op.source:
		w.lives(source, mark)
	}
	w.listedIsWhole(mark) // it also forks, with another forkd-spawn
	w.fork(parentTag)
	w.clean()
	// A VMM unknown to the daemon finds its connection closed, and ends.
	w.eventually("end of all VMMs", func() bool { return len(w.d.Processes()) == 0 })
	w.nothingLeft()
}
