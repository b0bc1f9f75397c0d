package catalog

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Draft is a snapshot that is being written. Its tag is taken until End, which its owner
// must call once it has committed the draft or given it up.
type Draft struct {
	*snapshot.Draft
	catalog *Catalog
	tag     string
	info    sandbox.SnapshotInfo
	ended   bool
	whole   bool  // it is committed
	reason  error // why it is given up, if that is known
}

// Begin takes a tag for a snapshot that is going to be written, and lists it as info says.
// Forks from the tag are refused until End; with forksWait they wait for it.
func (c *Catalog) Begin(info sandbox.SnapshotInfo, forksWait bool) (*Draft, error) {
	// The folder first: it is what keeps two writers apart, and refuses a tag that is there.
	draft, err := c.snapshots.Create(info.Tag)
	if err != nil {
		return nil, sandbox.StoreError(err)
	}
	info.Dir, info.Status = c.snapshots.Dir(info.Tag), sandbox.SnapshotWriting
	if err := c.tags.begin(info, forksWait); err != nil {
		draft.Discard()
		return nil, err
	}
	return &Draft{Draft: draft, catalog: c, tag: info.Tag, info: info}, nil
}

// Scratch is a draft that becomes no snapshot: layers are made in it, and nobody sees its tag. Who wants to
// keep them pins them before End.
func (c *Catalog) Scratch(tag string) (*Draft, error) {
	draft, err := c.snapshots.Create(tag)
	if err != nil {
		return nil, sandbox.StoreError(err)
	}
	return &Draft{Draft: draft, catalog: c, tag: tag, ended: true}, nil
}

// Tag is the snapshot's.
func (d *Draft) Tag() string { return d.tag }

// Dir is where the draft's files are until it is committed.
func (d *Draft) Dir() string { return d.catalog.snapshots.DraftDir(d.tag) }

// Commit makes the draft the snapshot of its tag, which can be forked from after End.
func (d *Draft) Commit(m *snapshot.Manifest) error {
	err := d.Draft.Commit(m)
	d.whole = err == nil
	return err
}

// Because says why the draft is going to be given up, for those who follow what happens.
func (d *Draft) Because(reason error) { d.reason = reason }

// End frees the tag, and discards a draft that was not committed. Only the first call
// does something, and none after Fail has freed the tag.
func (d *Draft) End() {
	d.free(end, nil)
	d.Discard()
}

// Fail is for a draft that was given up when nobody waited for it any more: the tag stays
// listed, with the reason, until it is deleted or written again. Nothing of that is on
// disk, so the list ends with the daemon. End must follow.
func (d *Draft) Fail(reason error) { d.free(fail, reason) }

func (d *Draft) free(ev event, reason error) {
	if d.ended {
		return
	}
	d.ended = true
	d.catalog.tags.free(d.tag, ev, reason)
	d.tell(reason)
}

// tell says what became of the draft.
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

// Withdraw deletes the draft's snapshot after it was committed and before End: nobody can
// have forked from it.
func (d *Draft) Withdraw() error {
	d.whole = false
	err := d.catalog.snapshots.Delete(d.tag)
	d.catalog.CollectLater()
	return err
}
