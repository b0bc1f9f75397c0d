package pressure

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/test/harness"
)

const (
	memoryMiB = 96  // memory limit of an attacker
	treeMiB   = 256 // limit of an attacker with all its forks
)

// numbers returns the number of children, and of attackers among them: two of each kind, four in a soak.
func numbers() (crowd, hostile int) {
	if harness.Soaking() {
		return 200, 20
	}
	return 100, 10
}

// answerWithin bounds one eval of a peaceful child during the attacks. It is a thousand times the
// value without load, because the test's machine has two CPUs and is itself emulated.
const answerWithin = 30 * time.Second

// flat is the maximum growth of the daemon's own memory during the siege.
const flat = 48 << 20

// The attacks. Each is a program that only a kill ends.
var (
	//go:embed testdata/memory.py
	memory string
	//go:embed testdata/processes.py
	processes string
	//go:embed testdata/forks.py
	forks string
	//go:embed testdata/disk.py
	disk string
	//go:embed testdata/packets.py
	packets string
)

var attacks = []struct{ name, program string }{
	{"memory", memory}, {"processes", processes}, {"forks", forks}, {"disk", disk}, {"packets", packets},
}

func TestOneInTenDoesItsWorst(t *testing.T) {
	w := open(t)
	crowd, hostile := numbers()
	peaceful := w.fork(api.SandboxLimits{}, 0, crowd-hostile)
	bad := w.fork(api.SandboxLimits{TreeMemoryLimitMiB: treeMiB}, memoryMiB, hostile)
	quiet := w.sweep(peaceful)
	t.Logf("in quiet: %s", quiet)
	before := w.daemonMemory()

	siege := w.attack(bad)
	began, span := time.Now(), harness.Span(t, 20*time.Second)
	for sweeps := 0; sweeps == 0 || time.Since(began) < span; sweeps++ {
		took := w.sweep(peaceful)
		t.Logf("under siege for %s: %s; the daemon has %+d KiB", time.Since(began).Round(time.Second), took,
			(w.daemonMemory()-before)>>10)
		if took.max() > answerWithin {
			t.Errorf("an eval took %s, want at most %s", took.max(), answerWithin)
		}
	}
	w.wantEnds(bad)
	siege.end()
	if grown := w.daemonMemory() - before; grown > flat {
		t.Errorf("the daemon's memory has grown by %d MiB, want at most %d", grown>>20, flat>>20)
	}
	for _, id := range bad {
		if err := w.Client.Kill(t.Context(), id, client.KillTree); err != nil {
			t.Errorf("end of %s and all that it forked: %v", id, err)
		}
	}
	if left := w.listed(); len(left) != len(peaceful) {
		t.Errorf("%d sandboxes are left, want the %d peaceful ones", len(left), len(peaceful))
	}
	for _, sb := range peaceful {
		if info, err := w.Client.Sandbox(t.Context(), sb); err != nil || info.Status != api.SandboxRunning {
			t.Errorf("%s, which did nothing, is %s (%s), %v", sb, info.Status, info.Reason, err)
		}
	}
	if trouble := w.troubleOf(peaceful); len(trouble) > 0 {
		t.Errorf("peaceful guests complain:\n%s", strings.Join(trouble, "\n"))
	}
	w.close()
}

// siege holds the running attacks.
type siege struct {
	stop context.CancelFunc
	all  sync.WaitGroup
}

// end stops the attackers' requests. Programs in their guests continue.
func (s *siege) end() {
	s.stop()
	s.all.Wait()
}

// attack starts an attack in each attacker, with each kind of attack in turn.
func (w *world) attack(ids []string) *siege {
	ctx, cancel := context.WithCancel(w.t.Context())
	s := &siege{stop: cancel}
	for i, id := range ids {
		program := attacks[i%len(attacks)].program
		s.all.Go(func() {
			// The attack runs in the warm interpreter, which needs no start. It may end in any way,
			// with its guest's agent or its VM.
			r, err := w.Client.Eval(ctx, id, api.EvalRequest{Code: program, TimeoutSecs: 3600})
			if ctx.Err() == nil {
				w.t.Logf("%s, %s: %+v, %v", id, attacks[i%len(attacks)].name, r, err)
			}
		})
	}
	w.t.Cleanup(s.end)
	return s
}

// wantEnds waits until the attackers of memory were ended by their limit. It checks that each other
// attacker runs, or has ended with a reason.
func (w *world) wantEnds(ids []string) {
	limited := fmt.Sprintf("memory limit of %d MiB reached", memoryMiB)
	var list map[string]api.SandboxInfo
	var counts map[string]int
	for end := time.Now().Add(3 * harness.Patience()); ; time.Sleep(time.Second) {
		list, counts = w.listed(), map[string]int{}
		for i, id := range ids {
			counts[fmt.Sprintf("%s %s %s", attacks[i%len(attacks)].name, list[id].Status, list[id].Reason)]++
		}
		if counts["memory failed "+limited] == len(ids)/len(attacks) || time.Now().After(end) {
			break
		}
	}
	w.t.Logf("the hostile: %v", counts)
	for i, id := range ids {
		sb, name := list[id], attacks[i%len(attacks)].name
		if name == "memory" && (sb.Status != api.SandboxFailed || sb.Reason != limited) {
			w.t.Errorf("%s took all memory and is %s (%s), using %+v, want it ended: %s", id, sb.Status, sb.Reason, sb.Use, limited)
		}
		if sb.Status != api.SandboxRunning && sb.Reason == "" {
			w.t.Errorf("%s (%s) is %q, without a reason", id, name, sb.Status)
		}
	}
}
