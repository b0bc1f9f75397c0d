package launch

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// populateTimeout bounds what a child loses if its VMM is stuck.
const populateTimeout = 20 * time.Second

// Populate maps at once what the child is going to touch. It is help, not a
// condition: without it the child takes a fault for each page. index is for the log.
func (l *Launcher) Populate(ctx context.Context, src *Source, m *VM, index int) {
	if src.WorkingSet == nil {
		return
	}
	m.Populated += l.populate(ctx, src.WorkingSet, m.Proc.Populate, "tag", src.Tag, "index", index)
}

// populateShell maps what costs a prepared VM next to nothing, ahead of the fork: pages that
// its child will only read, on its way to ready or in what is asked of it first.
func (l *Launcher) populateShell(ctx context.Context, src *Source, m *VM) {
	// Those of first requests have the pages of the way to ready as well.
	if set := cmp.Or(src.EvalSet, src.ExecSet, src.WorkingSet); set != nil {
		ahead := func(ctx context.Context, set *os.File) (vmm.WorkingSetResult, error) {
			return client.PopulateShell(ctx, m.Proc, set)
		}
		m.Populated = l.populate(ctx, set, ahead, "tag", src.Tag, "for", "shell")
	}
}

// PopulateFor maps what a sandbox's first request is going to touch: an evaluation
// or a program, by the name of the file that knows it. dir is that of the snapshot that it
// runs from, by its tag: if that is gone, or knows nothing, the sandbox does without, and another
// one's set does no harm, as it is advice.
func (l *Launcher) PopulateFor(ctx context.Context, m *vmproc.VM, dir, name string) {
	set, err := durable.Open(filepath.Join(dir, name))
	if err != nil {
		return
	}
	defer set.Close()
	l.populate(ctx, set, m.Proc.Populate, "for", name)
}

func (l *Launcher) populate(ctx context.Context, set *os.File,
	do func(context.Context, *os.File) (vmm.WorkingSetResult, error), what ...any) (pages int64) {
	ctx, cancel := context.WithTimeout(ctx, populateTimeout)
	defer cancel()
	r, err := do(ctx, set)
	if err != nil {
		l.cfg.Log.Warn("populate a child's memory", append(what, "err", err)...)
		return 0
	}
	l.cfg.Log.Debug("populated", append(what, "pages", r.ReadPages+r.WrittenPages, "map", r.Map, "kvm", r.KVM)...)
	return r.ReadPages + r.WrittenPages
}
