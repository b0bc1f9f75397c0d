package sandboxes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/sys/durable"
)

// A paused sandbox moves to another daemon in two steps, each of which replaces one file. The giver replaces the record
// of the pause by one that names the taker's claim: from then on it does not resume the sandbox. The taker has written
// its own record before, under a name without effect. It gives that record its name when the giver has answered. So the
// sandbox has one owner at each moment, and the claim may be repeated until there is an answer.

// Moved is the giver's record of a sandbox that another daemon has taken.
type Moved struct {
	ID    string    `json:"id"`
	Owner string    `json:"owner,omitempty"` // its tenant; empty for the operator
	To    string    `json:"to,omitempty"`    // name of the taker's node
	Claim string    `json:"claim"`           // of the taker
	At    time.Time `json:"at"`
}

// Claim is what a taker asks its giver with.
type Claim struct {
	From  string `json:"from"`  // the giver
	Token string `json:"token"` // random
	// Tag and Hash are those of the giver's snapshot.
	Tag  string `json:"tag"`
	Hash string `json:"hash"`
}

// Limits of the records of moves.
const (
	movedFor       = 30 * 24 * time.Hour
	mostMoved      = 1000 // of a tenant; the oldest is forgotten
	mostArriving   = 256
	mostArrivingOf = 16 // of a tenant
)

// arrivingSuffix is of a taker's record without effect.
const arrivingSuffix = ".arriving"

func (d PausedDir) arriving(id string) string { return filepath.Join(string(d), id+arrivingSuffix) }

// missingLocked returns the error for a sandbox that is not listed. One with a recorded claim has not ended: neither
// daemon may list it while its giver gives it up.
func missingLocked(t *Table, id string) error {
	id = sandbox.CanonicalID(id)
	if a := t.arriving[id]; a.recorded {
		return sandbox.BeingTaken(id, a.owner)
	}
	if m, ok := t.moved[id]; ok {
		return sandbox.MovedAway(id, m.Owner, m.To)
	}
	return notFound(id)
}

// isAway reports whether only the record of a paused sandbox may say how it is.
func isAway(t *Table, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, moved := t.moved[id]
	_, arriving := t.arriving[id]
	return moved || arriving || t.unread[id]
}

// MovedBy returns the record of a sandbox that another daemon has taken.
func MovedBy(t *Table, id string) (Moved, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, ok := t.moved[sandbox.CanonicalID(id)]
	return m, ok
}

// GiveUp records that another daemon has a paused sandbox. The record is the commit point. The caller has the sandbox's
// turn.
func GiveUp(s *Sandbox, c Claim, m Moved) (sandbox.Info, error) {
	s.files.Lock()
	defer s.files.Unlock()
	t := s.table
	t.mu.Lock()
	info, is := s.info, s.state
	t.mu.Unlock()
	switch {
	case is == ending:
		return info, ErrKilled
	case is != paused || info.PausedIn != c.Tag || info.PausedHash != c.Hash:
		return info, sandbox.Errorf(sandbox.ErrConflict, "", "sandbox %s is not paused any more in snapshot %s", s.id, c.Tag)
	}
	b, err := json.Marshal(pausedRecord{Version: movedVersion, Moved: &m})
	if err != nil {
		return info, err
	}
	if err := replaceDurably(t.cfg.Paused.file(s.id), b); err != nil {
		return info, fmt.Errorf("record that sandbox %s has moved: %w", s.id, err)
	}
	failpoint.Here(failpoint.MoveGiven)
	if !leave(s, m) {
		return info, ErrKilled
	}
	t.cfg.Events.Ended(info, true)
	return info, nil
}

// leave takes a sandbox off the list. It returns false if the sandbox is being killed: the kill waits for files, and
// removes the record.
func leave(s *Sandbox, m Moved) bool {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if !s.moveLocked(give) {
		return false
	}
	if cancel := s.rareLocked().cancel; cancel != nil {
		cancel(ErrKilled)
	}
	s.gone = make(chan struct{})
	close(s.gone)
	delete(t.all, s.id)
	t.moved[s.id] = m
	return true
}

// ForgetMoved removes old records of sandboxes that other daemons have taken.
func ForgetMoved(t *Table) {
	byOwner := map[string][]Moved{}
	t.mu.Lock()
	for _, m := range t.moved {
		byOwner[m.Owner] = append(byOwner[m.Owner], m)
	}
	t.mu.Unlock()
	for _, of := range byOwner {
		slices.SortFunc(of, func(a, b Moved) int { return cmp.Or(b.At.Compare(a.At), strings.Compare(a.ID, b.ID)) })
		for i, m := range of {
			if i >= mostMoved || t.cfg.Now().Sub(m.At) > movedFor {
				forgetMoved(t, m)
			}
		}
	}
}

func forgetMoved(t *Table, m Moved) {
	t.mu.Lock()
	defer t.mu.Unlock() // so that it does not come back meanwhile; the removal is short
	if t.moved[m.ID] != m {
		return
	}
	if err := os.Remove(t.cfg.Paused.file(m.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.cfg.Log.Warn("remove the record of a sandbox that has moved", "sandbox", m.ID, "err", err)
		return
	}
	delete(t.moved, m.ID)
}

// adoptArriving notes a sandbox that was being taken, by the name of a file.
func adoptArriving(t *Table, name string) bool {
	id, ours := strings.CutSuffix(name, arrivingSuffix)
	if !ours || !sandbox.ValidID(id) {
		return false
	}
	rec, err := t.cfg.Paused.readArriving(id)
	if err != nil {
		t.cfg.Log.Error("a sandbox that was being taken is not listed: its record cannot be read", "sandbox", id, "err", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.arriving[id] = (arriving{rec.Info.PausedIn, rec.Info.Owner, err == nil}); err != nil {
		t.unread[id] = true // keeps its snapshot
	}
	return true
}

func (d PausedDir) readArriving(id string) (rec pausedRecord, err error) {
	b, err := durable.ReadFile(d.arriving(id), maxPaused)
	if err == nil {
		err = json.Unmarshal(b, &rec)
	}
	if err == nil && rec.Claim == nil {
		err = errors.New("it has no claim")
	}
	if err == nil {
		err = rec.check(id)
	}
	return rec, err
}

// arriving is a sandbox that is being taken: the tag of its snapshot, and its owner.
type arriving struct {
	tag, owner string
	recorded   bool // with a claim
}

// Arrival is a sandbox that is being taken from another daemon.
type Arrival struct {
	table *Table
	rec   pausedRecord
}

// Claim returns the claim of a recorded arrival.
func (a *Arrival) Claim() Claim { return *a.rec.Claim }

// Info returns the sandbox.
func (a *Arrival) Info() sandbox.Info { return a.rec.Info }

// BeginArrival reserves the id and the snapshot of a sandbox that is to be taken. The caller ends it with Take, or with
// Drop. It is the only one for the id.
func BeginArrival(t *Table, info sandbox.Info, who sandbox.Identity) (*Arrival, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := 0
	for _, a := range t.arriving {
		if a.owner == info.Owner {
			of++
		}
	}
	_, busy := t.arriving[info.ID]
	switch {
	case busy || t.all[info.ID] != nil || t.unread[info.ID]:
		return nil, sandbox.Errorf(sandbox.ErrConflict, "", "sandbox %s is here already, or is being taken", info.ID)
	case len(t.arriving) >= mostArriving || of >= mostArrivingOf:
		return nil, sandbox.Errorf(sandbox.ErrBusy, "", "this daemon is taking %d sandboxes from others already",
			len(t.arriving))
	}
	t.arriving[info.ID] = arriving{tag: info.PausedIn, owner: info.Owner}
	return &Arrival{t, pausedRecord{Version: pausedVersion, Info: info, Who: who}}, nil
}

// OpenArrival returns an arrival that an earlier request or daemon has recorded, or nil.
func OpenArrival(t *Table, id string) (*Arrival, error) {
	id = sandbox.CanonicalID(id)
	t.mu.Lock()
	_, known := t.arriving[id]
	t.mu.Unlock()
	if !known {
		return nil, nil
	}
	rec, err := t.cfg.Paused.readArriving(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.Errorf(sandbox.ErrConflict, "", "sandbox %s is being taken by another request", id)
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of sandbox %s, which was being taken: %w", id, err)
	}
	return &Arrival{t, rec}, nil
}

// killArrival drops a sandbox whose giver has not answered. Its snapshot is swept.
func killArrival(t *Table, id string) error {
	a, err := OpenArrival(t, id)
	if a != nil {
		return a.Drop()
	}
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		err = missingLocked(t, id)
	}
	return err
}

// Record writes the record without effect. hash is the content hash of the snapshot here.
func (a *Arrival) Record(c Claim, hash string) error {
	a.rec.Claim, a.rec.Info.PausedHash = &c, hash
	b, err := json.Marshal(a.rec)
	if err == nil && len(b) > maxPaused {
		err = errors.New("it is too large")
	}
	if err == nil {
		err = replaceDurably(a.table.cfg.Paused.arriving(a.rec.Info.ID), b)
	}
	if err != nil {
		return fmt.Errorf("record the claim on sandbox %s: %w", a.rec.Info.ID, err)
	}
	t, i := a.table, a.rec.Info
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arriving[i.ID] = arriving{i.PausedIn, i.Owner, true}
	return nil
}

// Take lists the sandbox as paused: its giver has given it up. The new name of the record is the commit point. It
// replaces the record of an earlier move away from here.
func (a *Arrival) Take() error {
	t, id := a.table, a.rec.Info.ID
	if err := os.Rename(t.cfg.Paused.arriving(id), t.cfg.Paused.file(id)); err != nil {
		return fmt.Errorf("record sandbox %s, which was taken: %w", id, err)
	}
	if err := durable.SyncDir(string(t.cfg.Paused)); err != nil {
		t.cfg.Log.Error("record a sandbox that was taken: after the host's next boot ask for it again", "sandbox", id,
			"err", err)
	}
	failpoint.Here(failpoint.MoveTaken)
	a.rec.share()
	s := t.newSandbox("", a.rec.Who, a.rec.Info)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[id] = s
	delete(t.arriving, id)
	delete(t.moved, id)
	return nil
}

// Drop ends an arrival whose giver keeps the sandbox. It returns an error only if the record still exists.
func (a *Arrival) Drop() error {
	t, id := a.table, a.rec.Info.ID
	if err := os.Remove(t.cfg.Paused.arriving(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the claim on sandbox %s: %w", id, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.arriving, id)
	return nil
}
