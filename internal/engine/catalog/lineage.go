package catalog

import (
	"slices"

	"github.com/forkd/forkd/internal/store/snapshot"
)

// lineage is who was branched from whom, among the snapshots in the store.
type lineage struct {
	stored   map[string]snapshot.Entry // by tag
	children map[string][]string       // tags, by tag
}

func newLineage(entries []snapshot.Entry) lineage {
	l := lineage{stored: make(map[string]snapshot.Entry, len(entries)), children: map[string][]string{}}
	for _, en := range entries {
		l.stored[en.Tag] = en
	}
	for _, en := range entries {
		if en.Manifest == nil || en.Manifest.Parent == nil {
			continue
		}
		if parent, stored := l.find(*en.Manifest.Parent); stored {
			l.children[parent.Tag] = append(l.children[parent.Tag], en.Tag)
		}
	}
	return l
}

// find is the snapshot of a tag, if it is not another one by now. One whose manifest
// cannot be read passes for it.
func (l lineage) find(p snapshot.Parent) (snapshot.Entry, bool) {
	en, stored := l.stored[p.Tag]
	return en, stored && (en.ContentHash == "" || en.ContentHash == p.ContentHash)
}

// reused reports whether a parent's tag is another snapshot's by now.
func (l lineage) reused(p *snapshot.Parent) bool {
	if p == nil {
		return false
	}
	en, stored := l.stored[p.Tag]
	return stored && en.ContentHash != "" && en.ContentHash != p.ContentHash
}

// climb goes from snapshots up to those that they came from, nearest first, and visits each
// once. gone finds the manifests of snapshots that are not in the store any more; with nil
// the way ends at the first of these, else the manifests below it still name those above.
// A circle, which only a forged manifest can make, ends it too.
func (l lineage) climb(from []snapshot.Parent, gone func(hash string) *snapshot.Manifest, visit func(snapshot.Entry)) {
	seen := map[snapshot.Parent]bool{}
	for todo := slices.Clone(from); len(todo) > 0; {
		p := todo[len(todo)-1]
		if todo = todo[:len(todo)-1]; p.ContentHash == "" || seen[p] {
			continue
		}
		seen[p] = true
		var m *snapshot.Manifest
		if en, stored := l.find(p); stored {
			visit(en)
			m = en.Manifest
		} else if gone != nil {
			m = gone(p.ContentHash)
		}
		if m == nil {
			continue
		}
		if gone != nil {
			todo = append(todo, m.Ancestors...)
		}
		if m.Parent != nil {
			todo = append(todo, *m.Parent)
		}
	}
}

// ancestors are the tags of those that a snapshot came from, root first, up to the first
// that is gone.
func (l lineage) ancestors(of snapshot.Entry) []string {
	if of.Manifest == nil || of.Manifest.Parent == nil {
		return nil
	}
	var up []string
	l.climb([]snapshot.Parent{*of.Manifest.Parent}, nil, func(en snapshot.Entry) {
		if en.Tag != of.Tag {
			up = append(up, en.Tag)
		}
	})
	slices.Reverse(up)
	return up
}

// descendants are leaves first, so that they can be deleted in that order.
func (l lineage) descendants(tag string) []string {
	all := []string{tag}
	for i := 0; i < len(all); i++ {
		for _, c := range l.children[all[i]] {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	slices.Reverse(all)
	return all[:len(all)-1]
}
