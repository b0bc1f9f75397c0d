package enginetest

import (
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// renaming gives a snapshot with sandboxes, dependents, labels and a pool another tag.
func renaming(s suite) {
	made, err := s.Engine.CreateSnapshot(s.t.Context(),
		sandbox.CreateRequest{Tag: "old", Image: s.Image, Labels: ofLabels{"of": "old"}}, nil)
	s.must(err)
	sbs := s.fork("old", 2)
	running, paused := sbs[0].ID, sbs[1].ID
	_, err = s.Engine.Pause(s.t.Context(), paused, sandbox.PauseOptions{})
	s.must(err)
	s.branch(sandbox.BranchRequest{SandboxID: running, Tag: "above"})
	s.must(s.Engine.SetPool(s.t.Context(), "old", 1))

	info, err := s.Engine.RenameSnapshot(s.t.Context(), "old", "new")
	s.must(err)
	if info.Tag != "new" || info.ContentHash != made.ContentHash ||
		!slices.Equal(info.Dependents, s.info("new").Dependents) {
		s.t.Errorf("renamed: %+v", info)
	}
	s.wantLabels("the renamed snapshot", info.Labels, ofLabels{"of": "old"})
	if got := s.info("above"); got.ParentTag != "new" || !slices.Equal(got.Ancestors, []string{"new"}) {
		s.t.Errorf("its dependent has the parent %q and the ancestors %q", got.ParentTag, got.Ancestors)
	}
	for _, p := range s.Engine.Pools() {
		if p.Tag == "old" || p.Tag == "new" && p.Wanted != 1 {
			s.t.Errorf("pool %+v", p)
		}
	}
	_, err = s.Engine.SnapshotInfo(s.t.Context(), "old")
	s.want(sandbox.ErrNotFound, err, "the old tag")
	_, err = s.Engine.Fork(s.t.Context(), sandbox.ForkRequest{Tag: "old", N: 1})
	s.want(sandbox.ErrNotFound, err, "a fork from the old tag")
	for _, id := range []string{running, paused} {
		if got, err := s.Engine.Get(id); err != nil || got.SnapshotTag != "new" {
			s.t.Errorf("%s comes from %q: %v", id, got.SnapshotTag, err)
		}
	}
	_, err = s.Engine.Resume(s.t.Context(), paused)
	s.must(err)
	for _, id := range []string{running, paused} {
		_, err = s.Engine.Ping(s.t.Context(), id)
		s.must(err)
		s.branch(sandbox.BranchRequest{SandboxID: id, Tag: "after-" + id})
		_, err = s.Engine.Rollback(s.t.Context(), id, "new")
		s.must(err)
	}
	_, err = s.Engine.RenameSnapshot(s.t.Context(), "new", "newer")
	s.must(err)
	if got, err := s.Engine.Get(running); err != nil || got.SnapshotTag != "newer" || got.RolledBackTo != "newer" {
		s.t.Errorf("it comes from %q, and is at %q: %v", got.SnapshotTag, got.RolledBackTo, err)
	}
	s.want(sandbox.ErrConflict, s.Engine.DeleteSnapshot(s.t.Context(), "newer", sandbox.DeleteOptions{}), "it is in use")
	s.create("old") // the tag is free
	s.fork("newer", 1)
}

func noRenaming(s suite) {
	s.create("taken")
	for _, c := range []struct {
		name, tag, to string
		want          error
	}{
		{"a tag that is taken", base, "taken", sandbox.ErrConflict},
		{"the same tag", base, base, sandbox.ErrConflict},
		{"a tag that is none", base, "../x", sandbox.ErrInvalid},
		{"an empty tag", base, "", sandbox.ErrInvalid},
		{"what is no snapshot", "none", "x", sandbox.ErrNotFound},
	} {
		_, err := s.Engine.RenameSnapshot(s.t.Context(), c.tag, c.to)
		s.want(c.want, err, c.name)
	}
	s.info(base)
	s.info("taken")
}
