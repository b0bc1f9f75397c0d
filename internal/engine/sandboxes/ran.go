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

// A boot of the host clears the run directory with the journals of the running sandboxes. The store
// therefore has a list of them. It is written in the background: a fork does not wait for it, and a
// crash of the host may lose sandboxes that ran for less than noteEvery.

// ranVersion is the version of the list.
const ranVersion = 1

// maxRan limits the size of a list when it is read.
const maxRan = 64 << 20

// noteEvery is the interval between checks of the running sandboxes.
const noteEvery = 2 * time.Second

// ranList is the content of the file.
type ranList struct {
	Version   int         `json:"version"`
	Boot      string      `json:"boot"` // boot id of the host when it was written
	Sandboxes []ranRecord `json:"sandboxes"`
}

// ranRecord is one sandbox that ran, or that a boot ended and that is still listed.
type ranRecord struct {
	Info sandbox.Info `json:"info"`
	// Ended is when a daemon found that a boot had ended the sandbox. It is zero if the sandbox
	// ran.
	Ended time.Time `json:"ended,omitzero"`
}

// EndedByBoot is the failure reason of a sandbox that ran when the host was rebooted.
const EndedByBoot = "the host was rebooted while it ran"

// Ran maintains the list of running sandboxes.
type Ran struct {
	t *Table
	// booted reports that the host was booted after the previous daemon wrote the list. It is set
	// before any adoption.
	booted bool
	seed   maphash.Seed

	mu    sync.Mutex // guards the fields below, and the file Config.Ran; taken before Table.mu
	noted uint64     // mark of the list in the file
}

// Note writes the list of running sandboxes whenever it has changed, until ctx ends.
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

// write writes the list of running sandboxes if it has changed.
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
		t.cfg.Log.Warn("write the list of running sandboxes: after a reboot of the host they may be missing", "err", err)
		return
	}
	r.noted = mark
}

// list returns the list to keep for after a boot, and a mark that changes with it.
func (r *Ran) list() (list ranList, mark uint64) {
	t := r.t
	list, mark = ranList{Version: ranVersion, Boot: t.cfg.Boot}, 1
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		// Failed sandboxes stay in it: a host that shuts down ends the VMs before the daemon.
		if s.state != running && s.state != failed {
			continue
		}
		i := s.info
		list.Sandboxes = append(list.Sandboxes, ranRecord{Ended: s.rareLocked().endedByBoot, Info: sandbox.Info{ID: i.ID,
			SnapshotTag: i.SnapshotTag, SnapshotHash: i.SnapshotHash, Index: i.Index, Owner: i.Owner, Status: i.Status,
			Reason: i.Reason, Life: i.Life, CreatedAt: i.CreatedAt, Shape: i.Shape, Hostname: i.Hostname}}) // no secrets
		mark += maphash.String(r.seed, i.ID) // independent of the order
	}
	return list, mark
}

// read reads the list of an earlier daemon, and records whether the host was booted since.
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
			t.cfg.Log.Warn("read the list of earlier running sandboxes", "err", err)
		}
		return ranList{}
	}
	r.booted = t.cfg.Boot != "" && was.Boot != "" && was.Boot != t.cfg.Boot
	return was
}

// listEnded lists the sandboxes that ran when the host was booted, as failed, for as long as other
// failed sandboxes. It runs after all other adoption, since a journal or a record has better
// information.
func (r *Ran) listEnded(was ranList) {
	t := r.t
	for _, rec := range was.Sandboxes {
		id := rec.Info.ID
		if !sandbox.ValidID(id) || t.Lookup(id) != nil || isAway(t, id) || rec.Ended.IsZero() && !r.booted {
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
		s.makeRareLocked().endedByBoot = at
		t.list(s)
	}
}
