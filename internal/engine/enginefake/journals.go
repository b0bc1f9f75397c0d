package enginefake

import (
	"path/filepath"

	"github.com/forkd/forkd/internal/engine/vmproc"
)

// JournalOf returns the path of the journal of the VM with this process.
func (h *Host) JournalOf(pid int) string {
	paths, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "vm", "*", vmproc.Journal))
	for _, p := range paths {
		var rec vmproc.Record
		if vmproc.ReadJSON(p, &rec) == nil && rec.Ref.PID == pid {
			return p
		}
	}
	return ""
}

// Journalled returns the pids in the run directory.
func (h *Host) Journalled() (pids []int) {
	dirs, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "vm", "*"))
	for _, d := range dirs {
		var rec vmproc.Record
		if vmproc.ReadJSON(filepath.Join(d, vmproc.Journal), &rec) == nil {
			pids = append(pids, rec.Ref.PID)
		}
	}
	return pids
}
