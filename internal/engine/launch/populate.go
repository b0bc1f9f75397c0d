package launch

import (
	"context"
	"time"
)

// populateTimeout bounds what a child loses if its VMM is stuck.
const populateTimeout = 20 * time.Second

// Populate maps at once what the child is going to touch. It is help, not a
// condition: without it the child takes a fault for each page. index is for the log.
func (l *Launcher) Populate(ctx context.Context, src *Source, m *VM, index int) {
	if src.WorkingSet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, populateTimeout)
	defer cancel()
	r, err := m.Proc.Populate(ctx, src.WorkingSet)
	if err != nil {
		l.cfg.Log.Warn("populate a child's memory", "tag", src.Tag, "index", index, "err", err)
		return
	}
	l.cfg.Log.Debug("populated", "index", index, "pages", r.ReadPages+r.WrittenPages,
		"map", r.Map, "kvm", r.KVM)
}
