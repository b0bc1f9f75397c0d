package catalog

import (
	"slices"

	"github.com/forkd/forkd/internal/store/snapshot"
)

// lineage holds the parent relation of the snapshots in the store.
type lineage struct {
	stored   map[string]snapshot.Entry // by tag
	byHash   map[string]string         // tags, by content hash, for snapshots that were renamed
	children map[string][]string       // tags, by tag
}

func newLineage(entries []snapshot.Entry) lineage {
	l := lineage{stored: make(map[string]snapshot.Entry, len(entries)),
		byHash: make(map[string]string, len(entries)), children: map[string][]string{}}
	for _, en := range entries {
		l.stored[en.Tag] = en
		l.byHash[en.ContentHash] = en.Tag
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

// find returns the snapshot of a tag, unless the tag was reused for another snapshot. A snapshot
// with an unreadable manifest matches. A renamed snapshot is found by its content.
func (l lineage) find(p snapshot.Parent) (snapshot.Entry, bool) {
	en, stored := l.stored[p.Tag]
	if stored && (en.ContentHash == "" || en.ContentHash == p.ContentHash) {
		return en, true
	}
	if now := l.byHash[p.ContentHash]; now != "" && p.ContentHash != "" {
		return l.stored[now], true
	}
	return en, false
}

// tagOf returns the present tag of a parent: another one if it was renamed, and none if its tag now
// names another snapshot. The tag of a deleted parent stays.
func (l lineage) tagOf(p snapshot.Parent) string {
	if en, stored := l.find(p); stored {
		return en.Tag
	}
	if en, stored := l.stored[p.Tag]; stored && en.ContentHash != "" {
		return ""
	}
	return p.Tag
}

// climb visits the ancestors of snapshots, nearest first, each once. gone finds the manifests of
// snapshots no longer in the store. If gone is nil, climb stops at the first of them; otherwise
// their manifests name the ancestors above. climb also stops at a cycle, which only a forged
// manifest can create.
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

// ancestors returns the tags of a snapshot's ancestors, root first, up to the first missing one.
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

// descendants returns the descendants of a tag, leaves first, so that they can be deleted in that
// order.
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
