package arrivals

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/partial"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/workingset"
)

// Pull registers the absent parts of one snapshot. Close ends it.
type Pull struct {
	a      *Arrivals
	source *hub.Source
	ids    []layer.ID
	uses   []*os.File // keep the collection away until the snapshot pins the files
}

// Begin returns a Pull from a source, for a tenant or the operator. Tenants may use the hosts that the operator allows:
// the daemon sends the requests, from its place in the network.
func (a *Arrivals) Begin(owner string, source *hub.Source) (*Pull, error) {
	if a.cfg.Client == nil {
		return nil, sandbox.Errorf(sandbox.ErrConflict, "", "this daemon fetches no snapshots itself")
	}
	host := ociimage.Host(source.Ref)
	if host == "" {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "", "reference %.200q: want HOST/REPOSITORY@DIGEST", source.Ref)
	}
	if owner != "" && (!slices.Contains(a.cfg.Hosts, host) || len(source.Mirrors) > 0) {
		return nil, sandbox.Errorf(sandbox.ErrForbidden, "", "the daemon does not fetch snapshots from %s for tenants, "+
			"and from mirrors for the operator only", host)
	}
	return &Pull{a: a, source: source}, nil
}

// Late registers a part; it is the callback of hub.Incoming.
func (p *Pull) Late(ctx context.Context, d *snapshot.Draft, part hub.Part, t *hub.Table, id *layer.ID) error {
	lazy := layer.NewID()
	if id != nil {
		lazy = *id
	}
	layers := p.a.cfg.Store.Layers()
	use, err := layers.Arriving().Use(lazy)
	if err != nil {
		return err
	}
	p.uses = append(p.uses, use)
	if err := layers.Room(0); err != nil {
		return err
	}
	spec := partial.Spec{Name: part.Name, Frames: part.Frames, Origin: p.source.Origin}
	err = partial.Create(layers.Arriving().Dir(), lazy, spec, t)
	if errors.Is(err, fs.ErrExist) { // of another pull, or of one that was interrupted
		if !partial.Same(layers.Arriving().Dir(), lazy, t) {
			return fmt.Errorf("%w: the store has a part of another %s", hub.ErrInvalid, part.Name)
		}
		err = nil
	}
	if err != nil {
		return err
	}
	if err := p.a.cfg.Client.Add(ctx, lazy, p.source.Logins); err != nil {
		return err
	}
	p.ids = append(p.ids, lazy)
	if id == nil {
		return d.Late(part.Name, part.Content, lazy)
	}
	return nil
}

// Start begins the prefetch. The draft has all parts, and the manifest is m.
func (p *Pull) Start(ctx context.Context, d *snapshot.Draft, m *snapshot.Manifest) error {
	if err := p.order(d, m); err != nil {
		return err
	}
	return p.a.cfg.Client.Start(ctx, p.ids)
}

// Close lets the collection take files that no snapshot has pinned.
func (p *Pull) Close() {
	for _, use := range p.uses {
		use.Close()
	}
}

// order records in which layers and where the working sets of children lie. A bad working set is no error: it is advice.
func (p *Pull) order(d *snapshot.Draft, m *snapshot.Manifest) error {
	layers := p.a.cfg.Store.Layers()
	chain, err := layers.Chain(m.Memory.Layers...)
	if err != nil {
		return err
	}
	defer chain.Close()
	of := map[*os.File]layer.ID{}
	for _, l := range chain.Layers() {
		of[l.File()] = l.ID
	}
	at := map[layer.ID][]int64{}
	for _, name := range snapshot.WorkingSets {
		f := d.Opened(name)
		if f == nil {
			continue
		}
		set, err := workingset.Read(f, m.Shape.MemoryBytes())
		if err != nil {
			continue
		}
		for r := range set.Runs() {
			for e := range extent.Within(chain.Extents(), r.Offset, r.End()) {
				id := of[e.File]
				for off := e.FileOffset; off < e.FileOffset+e.Length; off += hub.ChunkBytes - off%hub.ChunkBytes {
					at[id] = append(at[id], off)
				}
			}
		}
	}
	for id, offsets := range at {
		if slices.Contains(p.ids, id) {
			if err := partial.WriteOrder(filepath.Join(layers.Arriving().Dir(), id.String()), offsets); err != nil {
				return err
			}
		}
	}
	return nil
}
