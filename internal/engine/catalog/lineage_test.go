package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// origin returns the origin of a sandbox forked from a snapshot.
func origin(of snapshot.Entry) Origin {
	return Origin{Sandbox: "sb-1", From: []snapshot.Parent{{Tag: of.Tag, ContentHash: of.ContentHash}, {}}}
}

// A sandbox may be rolled back to the snapshots it came from and to its own branches, even if
// snapshots in between are gone. It may not be rolled back to snapshots that have reused one of
// their tags.
func TestAncestry(t *testing.T) {
	b := newBench(t)
	b.make("root", "")
	b.make("b1", "root")
	b.make("b2", "b1")
	b3 := b.make("b3", "b2")
	b.makeWith("own", "b3", branched("sb-1", false))
	b.makeWith("other", "b3", branched("sb-2", false))
	at := func(want string) {
		t.Helper()
		entries, err := b.snapshots.List()
		b.must(err)
		if got := strings.Join(b.ancestry(origin(b3), entries), " "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	at("b1 b2 b3 own root")
	b.must(b.Delete("b1", sandbox.DeleteOptions{Force: true}))
	at("b2 b3 own root")
	b.make("b1", "")
	at("b2 b3 own root")
	b.start("sb-1", "b3")
	for _, tag := range []string{"b2", "b3"} {
		b.must(b.Delete(tag, sandbox.DeleteOptions{Force: true}))
	}
	at("own root")
	b.reopen()
	at("own root")
	wantError(t, b.CheckRollback(origin(b3), "b2"), sandbox.ErrNotFound, "valid snapshots: own, root")
	err := b.CheckRollback(origin(b3), "other")
	wantError(t, err, sandbox.ErrConflict, "sandbox sb-1 does not descend from snapshot other")
	if err := b.CheckRollback(origin(b3), "root"); err != nil {
		t.Error(err)
	}
}

// Ancestors and dependents, as listed.
func TestLineage(t *testing.T) {
	b := newBench(t)
	b.make("root", "")
	for i := range 3 {
		parent := "root"
		if i > 0 {
			parent = fmt.Sprint("b", i-1)
		}
		b.make(fmt.Sprint("b", i), parent)
	}
	relatives := func(tag string, ancestors, dependents []string) {
		t.Helper()
		s, err := b.Get(tag)
		b.must(err)
		if !slices.Equal(s.Ancestors, ancestors) || !slices.Equal(s.Dependents, dependents) {
			t.Errorf("%s has %q, %q, want %q, %q", tag, s.Ancestors, s.Dependents, ancestors, dependents)
		}
	}
	relatives("b2", []string{"root", "b0", "b1"}, nil)
	relatives("b0", []string{"root"}, []string{"b1"})
	wantError(t, b.Delete("b0", sandbox.DeleteOptions{}), sandbox.ErrConflict, "snapshot b0 has dependents: b2, b1")
	b.must(b.Delete("b0", sandbox.DeleteOptions{Force: true}))
	relatives("b2", []string{"b1"}, nil) // ancestors end at a missing snapshot
	b.make("b0", "")
	relatives("b1", nil, []string{"b2"}) // another snapshot of the tag is not related
	relatives("b0", nil, nil)
	b.make("b3", "b2")
	b.must(b.Delete("b1", sandbox.DeleteOptions{Cascade: true}))
	if want := []string{"b0", "b3", "b2", "b1"}; !slices.Equal(b.deleted, want) {
		t.Errorf("deleted %q, want %q: leaves first", b.deleted, want)
	}
	wantError(t, b.Delete("b0", sandbox.DeleteOptions{Cascade: true, Force: true}), sandbox.ErrInvalid)
}

// Transient snapshots are unneeded if no snapshot is based on them and no sandbox runs from them.
func TestTransient(t *testing.T) {
	b := newBench(t)
	b.make("root", "")
	b.makeWith("gf-1", "root", branched("sb-1", true))
	b.makeWith("gf-2", "gf-1", branched("sb-2", true))
	b.makeWith("gf-3", "root", branched("sb-1", true))
	b.start("sb-3", "gf-3")
	unneeded := func(want string) {
		t.Helper()
		total, tags, err := b.Transient()
		if got := fmt.Sprint(total, " ", strings.Join(tags, " ")); err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	unneeded("3 gf-2")
	b.stop("sb-3")
	leave, err := b.Use(t.Context(), "gf-2")
	b.must(err)
	unneeded("3 gf-3")
	leave()
	b.must(b.Delete("gf-2", sandbox.DeleteOptions{}))
	unneeded("2 gf-1 gf-3")
}
