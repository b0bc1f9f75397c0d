package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/sys/durable"
)

// The run directory is gone after a boot of the host, and with it the journals of what ran. So the
// store has a list of that, which is written beside all other work: a fork does not wait for it, and a
// host that fails may lose what ran for less than noteEvery.

// ranVersion stands in the list of what ran.
const ranVersion = 1

// maxRan bounds what is read back of it.
const maxRan = 64 << 20

// noteEvery is how often what runs is looked at.
const noteEvery = 2 * time.Second

// ranList is the content of the file.
type ranList struct {
	Version   int         `json:"version"`
	Boot      string      `json:"boot"` // of the host when it was written
	Sandboxes []ranRecord `json:"sandboxes"`
}

// ranRecord is one sandbox that ran, or that a boot has ended and that is still listed.
type ranRecord struct {
	Info sandbox.Info `json:"info"`
	// Ended is when a daemon found that a boot had ended it; zero: it ran.
	Ended time.Time `json:"ended,omitzero"`
}

// EndedByBoot is why a sandbox has failed that ran when the host was booted.
const EndedByBoot = "the host was rebooted while it ran"

// Ran keeps the list of what runs.
type Ran struct {
	t *Table
	// booted: the host was booted since the last daemon noted what ran. It is set before anything is adopted.
	booted bool
	seed   maphash.Seed

	mu    sync.Mutex // guards what follows, and the file Config.Ran; taken before Table.mu
	noted uint64     // the mark of what is in that file
}

// Note writes the list of what runs whenever it has changed, until ctx ends.
func (r *Ran) Note(ctx context.Context) {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		r.write()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// write writes the list of what runs if it has changed.
func (r *Ran) write() {
	t := r.t
	r.mu.Lock()
	defer r.mu.Unlock()
	list, mark := r.list()
	if mark == r.noted || t.cfg.Boot == "" {
		return
	}
	b, err := json.Marshal(list)
	if err == nil {
		err = replaceDurably(t.cfg.Ran, b)
	}
	if err != nil {
		t.cfg.Log.Warn("write the list of sandboxes that run: after a boot of the host they may be missing", "err", err)
		return
	}
	r.noted = mark
}

// list is what is to be known after a boot, and a mark that is another one when it has changed.
func (r *Ran) list() (list ranList, mark uint64) {
	t := r.t
	list, mark = ranList{Version: ranVersion, Boot: t.cfg.Boot}, 1
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		// One that failed stays in it: a host that shuts down ends the VMs before the daemon.
		if s.state != running && s.state != failed {
			continue
		}
		i := s.info
		list.Sandboxes = append(list.Sandboxes, ranRecord{Ended: s.fewLocked().endedByBoot, Info: sandbox.Info{ID: i.ID,
			SnapshotTag: i.SnapshotTag, SnapshotHash: i.SnapshotHash, Index: i.Index, Owner: i.Owner, Status: i.Status,
			Reason: i.Reason, Life: i.Life, CreatedAt: i.CreatedAt, Shape: i.Shape, Hostname: i.Hostname}}) // no secrets
		mark += maphash.String(r.seed, i.ID) // in no order
	}
	return list, mark
}

// read reads the list of an earlier daemon, and notes whether the host was booted since.
func (r *Ran) read() (was ranList) {
	t := r.t
	b, err := durable.ReadFile(t.cfg.Ran, maxRan)
	if err == nil {
		err = json.Unmarshal(b, &was)
	}
	if err == nil && was.Version != ranVersion {
		err = fmt.Errorf("its version is %d, want %d", was.Version, ranVersion)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			t.cfg.Log.Warn("read the list of sandboxes that ran", "err", err)
		}
		return ranList{}
	}
	r.booted = t.cfg.Boot != "" && was.Boot != "" && was.Boot != t.cfg.Boot
	return was
}

// listEnded lists what ran when the host was booted, as failed, for as long as others that failed. It
// follows all other adoption: what is known of a sandbox by its journal, or its record, is better.
func (r *Ran) listEnded(was ranList) {
	t := r.t
	for _, rec := range was.Sandboxes {
		id := rec.Info.ID
		if !sandbox.ValidID(id) || t.Lookup(id) != nil || t.isUnread(id) || rec.Ended.IsZero() && !r.booted {
			continue
		}
		rec.Info.Fail(EndedByBoot)
		s := t.newSandbox("", sandbox.Identity{ID: id}, rec.Info)
		at := rec.Ended
		if at.IsZero() {
			at = t.cfg.Now()
			t.cfg.Tell(sandbox.EventFailed, id, rec.Info.About())
			t.cfg.Log.Warn("sandbox failed", "sandbox", id, "snapshot", rec.Info.SnapshotTag, "reason", EndedByBoot)
		}
		s.makeFewLocked().endedByBoot = at
		t.list(s)
	}
}
