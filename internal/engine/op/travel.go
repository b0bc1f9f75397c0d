package op

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/arrivals"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/signature"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/sys/hostproc"
	"github.com/forkd/forkd/internal/vm/cpuid"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// Travels sends snapshots to other hosts, and receives them (docs/use/hub.md).
type Travels struct {
	ops    *Ops
	offers hub.Offers // of snapshots that other daemons read
	// CPU returns this host's processor. Tests replace it before the first call.
	CPU func() (hostproc.CPU, error)
	// Arrivals watches the snapshots that have not arrived whole.
	Arrivals *arrivals.Arrivals
	settling sync.Mutex // held while a sandbox of another daemon becomes listed
}

// NewTravels returns Travels.
func NewTravels(o *Ops) *Travels {
	return &Travels{ops: o, CPU: hostproc.ReadCPU, Arrivals: arrivals.New(arrivals.Config{Client: o.cfg.Fetcher,
		Hosts: o.cfg.FetchFrom, Store: o.store, Catalog: o.catalog, Sandboxes: o.sandboxes, Tell: o.cfg.Tell,
		Log: o.cfg.Logger})}
}

// ExportSnapshot writes a snapshot as a stream, an OCI layout in a tar. An error after the first byte is in the
// stream as well.
func (t *Travels) ExportSnapshot(ctx context.Context, req sandbox.ExportRequest, w io.Writer) error {
	ctx, done, err := t.ops.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	src, err := t.ops.openForkSource(ctx, req.Tag)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := t.ops.catalog.RefusePartial(src.Files.Manifest); err != nil {
		return err
	}
	if err := sandbox.RefuseTainted(t.ops.cfg.Secrets, req.Tag, src.Files.Manifest.Secrets); err != nil {
		return err
	}
	e := hub.Export{Files: src.Files, Layers: t.ops.layers, Secrets: req.Secrets, Pause: t.ops.traffic.Wait}
	if err := e.Write(ctx, w); err != nil {
		return fmt.Errorf("send snapshot %s: %w", req.Tag, sandbox.Ended(ctx, travelError(err)))
	}
	t.ops.cfg.Logger.Info("snapshot sent", "tag", req.Tag)
	return nil
}

// OpenBlobs opens a snapshot for other daemons. The first time, it reads all of it. Until the blobs are closed the
// snapshot cannot be deleted, so no layer is collected.
func (t *Travels) OpenBlobs(ctx context.Context, req sandbox.ExportRequest) (_ sandbox.Blobs, err error) {
	ctx, done, err := t.ops.begin(ctx)
	if err != nil {
		return nil, err
	}
	src, err := t.ops.openForkSource(ctx, req.Tag)
	if err != nil {
		done()
		return nil, err
	}
	release := func() {
		src.Close()
		done()
	}
	if err = t.ops.catalog.RefusePartial(src.Files.Manifest); err == nil {
		err = sandbox.RefuseTainted(t.ops.cfg.Secrets, req.Tag, src.Files.Manifest.Secrets)
	}
	if err != nil {
		release()
		return nil, err
	}
	b, err := t.offers.Open(ctx, hub.Export{Files: src.Files, Layers: t.ops.layers, Secrets: req.Secrets,
		Pause: t.ops.traffic.Wait}, release)
	if err != nil {
		return nil, fmt.Errorf("offer snapshot %s: %w", req.Tag, sandbox.Ended(ctx, travelError(err)))
	}
	return b, nil
}

// ImportSnapshot makes a snapshot from a stream. It compares every byte with its digest before the snapshot has a
// name. A snapshot of another processor is refused before its memory is read. A failed import leaves no files.
func (t *Travels) ImportSnapshot(ctx context.Context, req sandbox.ImportRequest,
	r io.Reader) (sandbox.SnapshotInfo, error) {
	ctx, done, err := t.ops.begin(ctx)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer done()
	if err := snapshot.CheckTag(req.Tag); err != nil {
		return sandbox.SnapshotInfo{}, sandbox.StoreError(err)
	}
	info, err := t.receive(ctx, req, r)
	if err != nil {
		return sandbox.SnapshotInfo{}, fmt.Errorf("receive snapshot %s: %w", info.Tag, sandbox.Ended(ctx, travelError(err)))
	}
	if req.Check {
		return info, nil
	}
	t.ops.catalog.HashLater(info.Tag)
	t.ops.cfg.Logger.Info("snapshot received", "tag", info.Tag)
	return t.ops.catalog.Get(info.Tag)
}

func (t *Travels) receive(ctx context.Context, req sandbox.ImportRequest,
	r io.Reader) (info sandbox.SnapshotInfo, err error) {
	info.Tag, info.Owner = req.Tag, req.Owner
	in, err := hub.Open(r, t.ops.cfg.Trust)
	if err != nil {
		return info, err
	}
	m := in.Manifest
	info.Shape, info.CreatedAt, m.Owner = m.Shape, time.UnixMilli(m.CreatedUnixMS), req.Owner
	ofPause(m, req.PauseOf)
	m.Secrets = nil // of another daemon's tenants
	if m.Network != nil {
		p := m.Network.WithoutReferences()
		m.Network = &p
	}
	state, err := in.State()
	if err != nil {
		return info, err
	}
	if err := t.judge(m, state); err != nil || req.Check {
		return info, err
	}
	draft, err := t.ops.catalog.Begin(info, false)
	if err != nil {
		return info, err
	}
	defer draft.End()
	pull, err := t.late(in, req)
	if err == nil {
		defer pull.Close()
		err = in.Receive(ctx, draft.Draft, state)
	}
	if err == nil && in.Source != nil {
		err = pull.Start(ctx, draft.Draft, m)
	}
	if err == nil {
		err = draft.Commit(m)
	}
	if err != nil {
		draft.Because(err)
		t.ops.catalog.CollectLater() // its layers
	}
	return info, err
}

// late prepares the receipt of a stream without all parts.
func (t *Travels) late(in *hub.Incoming, req sandbox.ImportRequest) (*arrivals.Pull, error) {
	if in.Source == nil {
		return &arrivals.Pull{}, nil
	}
	p, err := t.Arrivals.Begin(req.Owner, in.Source)
	if err == nil {
		in.Late = p.Late
	}
	return p, err
}

// judge refuses a state that this host cannot restore, as far as the daemon can find out. The VMM checks it again at
// each restore.
func (t *Travels) judge(m *snapshot.Manifest, state *hub.State) error {
	st, err := vmstate.Read(bytes.NewReader(state.Bytes))
	if err != nil {
		return refused(m, "its state: %w", err)
	}
	b, err := st.Section(cpuid.Section, cpuid.Version)
	if err != nil {
		return refused(m, "its state: %w", err)
	}
	table, err := cpuid.Decode(b)
	if err != nil {
		return refused(m, "its state: %w", err)
	}
	host, err := t.CPU()
	if err != nil {
		return nil // the restore decides
	}
	if was := cpuid.Vendor(table); was != host.Vendor {
		return refused(m, "it was made on a CPU of %q and this host's is of %q", was, host.Vendor)
	}
	if missing := host.Missing(cpuid.Features(table)); len(missing) > 0 {
		return refused(m, "this host's CPU lacks features that it needs: %s", fmt.Sprint(missing))
	}
	return nil
}

func refused(m *snapshot.Manifest, format string, args ...any) error {
	return sandbox.Errorf(storeerr.ErrNotRestorable, sandbox.ReasonRestoreRefused, "snapshot %s cannot run here: %w",
		m.Tag,
		fmt.Errorf(format, args...))
}

// travelError adds the sentinel for a caller.
func travelError(err error) error {
	var known *sandbox.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, hub.ErrSecret):
		return sandbox.Errorf(sandbox.ErrConflict, "",
			"%w: the access token of a sandbox that still exists; end that sandbox first", err)
	case errors.Is(err, signature.ErrRefused):
		return sandbox.Errorf(sandbox.ErrForbidden, sandbox.ReasonUnsigned,
			"%w; the operator of this daemon requires it", err)
	case errors.Is(err, hub.ErrInvalid):
		return sandbox.Errorf(sandbox.ErrInvalid, "", "%w", err)
	}
	return sandbox.StoreError(err)
}
