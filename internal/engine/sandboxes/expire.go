package sandboxes

import (
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
)

// maxFailed limits the number of listed failed sandboxes.
const maxFailed = 1000

func (t *Table) expired() (out []*Sandbox) {
	var all []sandbox.Info
	for _, i := range t.List() {
		if i.Status == sandbox.StatusFailed {
			all = append(all, i)
		}
	}
	for n, i := range all { // oldest first
		if t.cfg.Now().Sub(t.failedAt(i)) < t.cfg.FailedKeep && len(all)-n <= maxFailed {
			continue
		}
		if s := t.Lookup(i.ID); s != nil {
			out = append(out, s)
		}
	}
	return out
}

// failedAt returns the time of the last change of the journal, which is when the sandbox failed.
func (t *Table) failedAt(i sandbox.Info) time.Time {
	s := t.Lookup(i.ID)
	if s == nil {
		return t.cfg.Now()
	}
	t.mu.Lock()
	at := s.rareLocked().endedByBoot
	t.mu.Unlock()
	if !at.IsZero() {
		return at
	}
	st, err := os.Stat(filepath.Join(s.Dir(), vmproc.SandboxJournal))
	if err != nil {
		return i.CreatedAt
	}
	return st.ModTime()
}
