package catalog

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Draft is a snapshot being written. It holds its tag until End. The owner must call End after it
// has committed or abandoned the draft.
type Draft struct {
	*snapshot.Draft
	catalog *Catalog
	tag     string
	info    sandbox.SnapshotInfo
	ended   bool
	whole   bool  // it is committed
	reason  error // why it is abandoned, if known
}

// Begin takes a tag for a new snapshot, and lists it with info. Forks from the tag are refused
// until End. If forksWait is set, they wait for End instead.
func (c *Catalog) Begin(info sandbox.SnapshotInfo, forksWait bool) (*Draft, error) {
	// The folder first: it excludes a second writer, and refuses an existing tag.
	draft, err := c.snapshots.Create(info.Tag)
	if err != nil {
		return nil, sandbox.StoreError(err)
	}
	if err := draft.Label(info.Labels); err != nil {
		draft.Discard()
		return nil, sandbox.StoreError(err)
	}
	info.Dir, info.Status = c.snapshots.Dir(info.Tag), sandbox.SnapshotWriting
	if err := c.tags.begin(info, forksWait); err != nil {
		draft.Discard()
		return nil, err
	}
	return &Draft{Draft: draft, catalog: c, tag: info.Tag, info: info}, nil
}

// Scratch returns a draft that never becomes a snapshot. It is used to make layers, and its tag is
// not listed. To keep the layers, the caller pins them before End.
func (c *Catalog) Scratch(tag string) (*Draft, error) {
	draft, err := c.snapshots.Create(tag)
	if err != nil {
		return nil, sandbox.StoreError(err)
	}
	return &Draft{Draft: draft, catalog: c, tag: tag, ended: true}, nil
}

// Tag returns the snapshot's tag.
func (d *Draft) Tag() string { return d.tag }

// Dir returns the directory of the draft's files until it is committed.
func (d *Draft) Dir() string { return d.catalog.snapshots.DraftDir(d.tag) }

// Commit makes the draft the snapshot of its tag. It can be forked after End.
func (d *Draft) Commit(m *snapshot.Manifest) error {
	err := d.Draft.Commit(m)
	d.whole = err == nil
	return err
}

// Because sets the reason why the draft will be abandoned, for outside observers.
func (d *Draft) Because(reason error) { d.reason = reason }

// End frees the tag, and discards a draft that was not committed. Only the first call has an
// effect, and none after Fail has freed the tag.
func (d *Draft) End() {
	d.free(end, nil)
	d.Discard()
}

// Fail marks a draft abandoned after its caller had left. The tag stays listed, with the reason,
// until it is deleted or written again. The list is not on disk, so it ends with the daemon. End
// must follow.
func (d *Draft) Fail(reason error) { d.free(fail, reason) }

func (d *Draft) free(ev event, reason error) {
	if d.ended {
		return
	}
	d.ended = true
	d.catalog.tags.free(d.tag, ev, reason)
	d.tell(reason)
}

// tell emits an event about the result of the draft.
func (d *Draft) tell(reason error) {
	about := d.info.About()
	if d.whole && reason == nil {
		d.catalog.cfg.Tell(sandbox.EventSnapshotCreated, d.tag, about)
		return
	}
	if reason == nil {
		reason = d.reason
	}
	if reason != nil {
		about[sandbox.EventKeyReason] = reason.Error()
	}
	d.catalog.cfg.Tell(sandbox.EventSnapshotFailed, d.tag, about)
}

// Withdraw deletes the draft's snapshot after it was committed and before End, while no fork from
// it is possible.
func (d *Draft) Withdraw() error {
	d.whole = false
	err := d.catalog.snapshots.Delete(d.tag)
	d.catalog.CollectLater()
	return err
}
