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

// populateTimeout bounds the delay of a child with a stuck VMM.
const populateTimeout = 20 * time.Second

// Populate maps the child's working set in one step. It is best effort: without it the child takes
// a fault for each page. index is for the log.
func (l *Launcher) Populate(ctx context.Context, src *Source, m *VM, index int) {
	if src.WorkingSet == nil {
		return
	}
	m.Populated += l.populate(ctx, src.WorkingSet, m.Proc.Populate, "tag", src.Tag, "index", index)
}

// populateShell maps pages of a prepared VM ahead of the fork at almost no cost: pages its child
// will only read, on its way to ready or during its first request.
func (l *Launcher) populateShell(ctx context.Context, src *Source, m *VM) {
	// The sets of first requests include the pages touched on the way to ready.
	if set := cmp.Or(src.EvalSet, src.ExecSet, src.WorkingSet); set != nil {
		ahead := func(ctx context.Context, set *os.File) (vmm.WorkingSetResult, error) {
			return client.PopulateShell(ctx, m.Proc, set)
		}
		m.Populated = l.populate(ctx, set, ahead, "tag", src.Tag, "for", "shell")
	}
}

// PopulateFor maps the pages touched by a sandbox's first request: an evaluation or a program. name
// is the file with that working set, and dir the directory of the sandbox's snapshot, by its tag.
// If the file is missing, PopulateFor does nothing. A set of another snapshot does no harm, since
// it is only advice.
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
