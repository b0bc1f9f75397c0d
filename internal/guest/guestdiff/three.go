package guestdiff

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/guestdelta"
)

// Entry is one file, folder, link or other entry of a guest, with its owner.
type Entry struct {
	guestdelta.File
	UID, GID uint32
}

// Three is a path that two guests have changed in different ways, or that one of them has changed,
// since a common ancestor. A missing entry is nil.
type Three struct {
	Path               string
	Base, Ours, Theirs *Entry
	// OursChanged and TheirsChanged report a difference from Base in any attribute, times included.
	// The content may be the same.
	OursChanged, TheirsChanged bool
}

// Changes are the paths that at least one of two guests has changed.
type Changes struct {
	Paths []Three // in the order of a walk: a folder before its entries
	// Complete is false if a guest has files that could not be looked at.
	Complete bool
	// Unnamed counts changed paths that are not UTF-8. They are left out of Paths.
	Unnamed int
}

// ErrTooMany is the error of CompareThree if there are more changes than the limit.
var ErrTooMany = errors.New("there are more changes than can be merged")

// CompareThree reads three inventories side by side and keeps the changes, at most limit. Different
// from Compare, it never cuts its result: a merge of a part of the changes is none. keep may be nil.
func CompareThree(ctx context.Context, base, ours, theirs Source, limit int, keep Keep) (Changes, error) {
	w := three{limit: limit, out: Changes{Complete: true}}
	for i, s := range []Source{base, ours, theirs} {
		w.from[i] = reader{from: s, keep: keep}
		defer w.from[i].drop()
	}
	if err := w.files(ctx); err != nil {
		return Changes{}, err
	}
	for i := range w.from {
		r := &w.from[i]
		if r.changesOnly != w.from[0].changesOnly {
			return Changes{}, fmt.Errorf("%w: one lists all of its files, the other what changed", ErrGuest)
		}
		if err := r.rest(); err != nil {
			return Changes{}, err
		}
		if r.end.GetUnreadable() > 0 {
			w.out.Complete = false
		}
	}
	return w.out, nil
}

// three merges three sorted lists.
type three struct {
	from  [3]reader
	now   [3]*agentv1.InventoryFile // the next file of each
	limit int
	out   Changes
}

func (w *three) files(ctx context.Context) (err error) {
	for i := range w.from {
		if w.now[i], err = w.from[i].file(); err != nil {
			return err
		}
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		first := w.first()
		if first == nil {
			return nil
		}
		var at [3]*agentv1.InventoryFile
		for i, f := range w.now {
			if f == nil || comparePaths(f.Path, first.Path) != 0 {
				continue
			}
			at[i] = f
			if w.from[i].files > maxFiles {
				return ErrTooMany
			}
		}
		if err := w.path(first, at); err != nil {
			return err
		}
		for i, f := range at {
			if f == nil {
				continue
			}
			if w.now[i], err = w.from[i].file(); err != nil {
				return err
			}
		}
	}
}

// first returns a file with the lowest path, or nil at the end of all lists.
func (w *three) first() (first *agentv1.InventoryFile) {
	for _, f := range w.now {
		if f != nil && (first == nil || comparePaths(f.Path, first.Path) < 0) {
			first = f
		}
	}
	return first
}

// path keeps a path, unless all guests have the same there.
func (w *three) path(any *agentv1.InventoryFile, at [3]*agentv1.InventoryFile) error {
	for i, f := range at {
		switch {
		case f == nil:
			at[i] = any.GetBelow() // unlisted: as in the image
		case f.Gone:
			at[i] = nil
		}
	}
	changed := func(i int) bool {
		if at[0] == nil || at[i] == nil {
			return at[0] != at[i]
		}
		return len(differences(at[0], at[i])) > 0
	}
	t := Three{OursChanged: changed(1), TheirsChanged: changed(2)}
	switch {
	case !t.OursChanged && !t.TheirsChanged:
		return nil
	case !utf8.Valid(any.Path):
		w.out.Unnamed++
		return nil
	case len(w.out.Paths) >= w.limit:
		return ErrTooMany
	}
	t.Path = string(any.Path)
	t.Base, t.Ours, t.Theirs = entryOf(at[0]), entryOf(at[1]), entryOf(at[2])
	w.out.Paths = append(w.out.Paths, t)
	return w.from[0].ask(3 * costOf(any))
}

func entryOf(f *agentv1.InventoryFile) *Entry {
	if f == nil {
		return nil
	}
	return &Entry{File: fileOf(f), UID: f.Uid, GID: f.Gid}
}
