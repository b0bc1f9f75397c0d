package sandboxes

import (
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
)

// NoteKills reads the consoles of running sandboxes, and reports the processes that their guests'
// kernels have killed for lack of memory: each by an event, the last one also in the journal and
// the list.
func NoteKills(t *Table) {
	for s, vm := range runningVMs(t) {
		last := ""
		if oom := s.Info().LastOOM; oom != nil {
			last = oom.Line
		}
		if kills, earlier := vm.Kills(last); len(kills) > 0 {
			s.noteKills(kills, earlier)
		}
	}
}

func runningVMs(t *Table) map[*Sandbox]*vmproc.VM {
	t.mu.Lock()
	defer t.mu.Unlock()
	vms := make(map[*Sandbox]*vmproc.VM, len(t.all))
	for _, s := range t.all {
		if s.state == running && s.vm != nil && !s.pausing {
			vms[s] = s.vm
		}
	}
	return vms
}

func (s *Sandbox) noteKills(kills []sandbox.OOM, earlier int) {
	info, err := s.change(func(i *sandbox.Info) error { i.LastOOM = &kills[len(kills)-1]; return nil })
	if err != nil {
		s.table.cfg.Log.Warn("record a process killed by a guest's kernel", "sandbox", s.id, "err", err)
	}
	for n, k := range kills {
		about := info.About()
		about["pid"], about["process"], about["time"] = strconv.Itoa(k.PID), k.Process, k.At.Format(time.RFC3339)
		if about[sandbox.EventKeyReason] = k.String(); n == 0 && earlier > 0 {
			about["earlier"] = strconv.Itoa(earlier)
		}
		s.table.cfg.Tell(sandbox.EventOOM, s.id, about)
	}
}
