package enginetest

import (
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

func creation(s suite) {
	var steps []string
	info, err := s.Engine.CreateSnapshot(s.t.Context(), sandbox.CreateRequest{Tag: "b", Image: s.Image},
		func(st sandbox.Step) {
			if steps = append(steps, st.Name); st.Done {
				steps = append(steps, "done")
			}
		})
	s.must(err)
	want := "boot boot done warm warm done quiesce quiesce done save save done"
	if got := strings.Join(steps, " "); got != want {
		s.t.Errorf("steps are %q, want %q", got, want)
	}
	if info.Tag != "b" || info.Status != sandbox.SnapshotReady || info.ContentHash == "" || info.Image != s.Image ||
		info.ParentTag != "" || len(info.Steps) != 4 {
		s.t.Errorf("got %+v", info)
	}
	s.create("a")
	s.wantTags("a", "b", base)
	for what, c := range map[string]struct {
		req  sandbox.CreateRequest
		kind error
	}{
		"a tag that is taken": {sandbox.CreateRequest{Tag: "a", Image: s.Image}, sandbox.ErrConflict},
		"a tag that is none":  {sandbox.CreateRequest{Tag: "no/tag", Image: s.Image}, sandbox.ErrInvalid},
		"no image":            {sandbox.CreateRequest{Tag: "c"}, sandbox.ErrInvalid},
		"a kernel alone":      {sandbox.CreateRequest{Tag: "c", Kernel: "/vmlinux"}, sandbox.ErrInvalid},
		"an image and a rootfs": {sandbox.CreateRequest{Tag: "c", Image: s.Image, Kernel: "/vmlinux", Rootfs: "/root"},
			sandbox.ErrInvalid},
		"a shape that cannot be": {sandbox.CreateRequest{Tag: "c", Image: s.Image, MemoryMiB: 1}, sandbox.ErrInvalid},
	} {
		_, err := s.Engine.CreateSnapshot(s.t.Context(), c.req, nil)
		s.want(c.kind, err, what)
	}
	s.wantTags("a", "b", base)
}

func noSnapshot(s suite) {
	e, ctx := s.Engine, s.t.Context()
	for what, call := range map[string]func(tag string) error{
		"info":   func(tag string) error { _, err := e.SnapshotInfo(ctx, tag); return err },
		"delete": func(tag string) error { return e.DeleteSnapshot(ctx, tag, sandbox.DeleteOptions{}) },
		"verify": func(tag string) error { _, err := e.VerifySnapshot(ctx, tag); return err },
		"compact": func(tag string) error {
			_, err := e.CompactSnapshot(ctx, tag, "to", nil)
			return err
		},
	} {
		s.want(sandbox.ErrNotFound, call("none"), what+" of a snapshot that is not there")
		s.want(sandbox.ErrInvalid, call("no/tag"), what+" of a tag that is none")
	}
	_, err := e.Fork(ctx, sandbox.ForkRequest{Tag: "none", N: 1})
	s.want(sandbox.ErrNotFound, err, "fork of a snapshot that is not there")
	s.want(sandbox.ErrNotFound, e.SetPool(ctx, "none", 1), "pool of a snapshot that is not there")
	for _, tags := range [][2]string{{"none", base}, {base, "none"}} {
		_, err = e.DiffSnapshots(ctx, sandbox.DiffRequest{Before: tags[0], After: tags[1]})
		s.want(sandbox.ErrNotFound, err, "comparison with a snapshot that is not there")
	}
	_, err = e.DiffSnapshots(ctx, sandbox.DiffRequest{Before: base, After: base, Limit: -1})
	s.want(sandbox.ErrInvalid, err, "comparison with a limit below zero")
}

func deletionWithDependents(s suite) {
	sb := s.fork(base, 1)[0].ID
	s.branch(sandbox.BranchRequest{SandboxID: sb, Tag: "b1"})
	child := s.fork("b1", 1)[0].ID
	s.branch(sandbox.BranchRequest{SandboxID: child, Tag: "b2"})
	s.must(s.Engine.Kill(s.t.Context(), sb))
	s.must(s.Engine.Kill(s.t.Context(), child))
	if info := s.info("b2"); !slices.Equal(info.Ancestors, []string{base, "b1"}) || info.ParentTag != "b1" {
		s.t.Errorf("b2 comes from %q, its parent is %q", info.Ancestors, info.ParentTag)
	}
	if info := s.info("b1"); !slices.Equal(info.Dependents, []string{"b2"}) {
		s.t.Errorf("b1 has dependents %q", info.Dependents)
	}
	remove := func(tag string, o sandbox.DeleteOptions) error { return s.Engine.DeleteSnapshot(s.t.Context(), tag, o) }
	s.want(sandbox.ErrConflict, remove("b1", sandbox.DeleteOptions{}), "deletion with dependents")
	s.want(sandbox.ErrInvalid, remove("b1", sandbox.DeleteOptions{Cascade: true, Force: true}),
		"deletion with both options")
	s.wantTags("b1", "b2", base)
	s.must(remove("b1", sandbox.DeleteOptions{Force: true}))
	s.wantTags("b2", base)
	if info := s.info("b2"); len(info.Ancestors) != 0 {
		s.t.Errorf("b2 comes from %q after its parent was deleted", info.Ancestors)
	}
	child = s.fork("b2", 1)[0].ID
	s.branch(sandbox.BranchRequest{SandboxID: child, Tag: "b3"})
	s.want(sandbox.ErrConflict, remove("b2", sandbox.DeleteOptions{Cascade: true}), "cascade over a snapshot in use")
	s.must(s.Engine.Kill(s.t.Context(), child))
	s.must(remove("b2", sandbox.DeleteOptions{Cascade: true}))
	s.wantTags(base)
}

func deletionInUse(s suite) {
	s.create("used")
	sb := s.fork("used", 1)[0]
	if info := s.info("used"); !slices.Equal(info.Sandboxes, []string{sb.ID}) {
		s.t.Errorf("used by %q", info.Sandboxes)
	}
	s.want(sandbox.ErrConflict, s.Engine.DeleteSnapshot(s.t.Context(), "used", sandbox.DeleteOptions{}),
		"deletion of what is in use")
	s.must(s.Engine.DeleteSnapshot(s.t.Context(), "used", sandbox.DeleteOptions{Force: true}))
	s.wantTags(base)
	if info, err := s.Engine.Get(sb.ID); err != nil || info.Status != sandbox.StatusRunning || info.SnapshotTag != "used" {
		s.t.Errorf("the sandbox is %+v, %v", info, err)
	}
	r := s.branch(sandbox.BranchRequest{SandboxID: sb.ID, Tag: "of-the-deleted"})
	if r.Snapshot.ParentContentHash != sb.SnapshotHash || len(r.Snapshot.Ancestors) != 0 {
		s.t.Errorf("branched from what was deleted: %+v", r.Snapshot)
	}
	s.create("used") // another snapshot of the tag, which the sandbox does not use
	if info := s.info("used"); len(info.Sandboxes)+len(info.Dependents) > 0 {
		s.t.Errorf("the new snapshot of the tag has sandboxes %q and dependents %q", info.Sandboxes, info.Dependents)
	}
	s.must(s.Engine.DeleteSnapshot(s.t.Context(), "used", sandbox.DeleteOptions{}))
}

func compaction(s suite) {
	sb := s.fork(base, 1)[0].ID
	s.branch(sandbox.BranchRequest{SandboxID: sb, Tag: "deep"})
	info, err := s.Engine.CompactSnapshot(s.t.Context(), "deep", "flat", nil)
	s.must(err)
	if info.Tag != "flat" || info.Status != sandbox.SnapshotReady || info.ParentTag != "" || len(info.Ancestors) != 0 ||
		info.BranchedFrom != "" {
		s.t.Errorf("got %+v", info)
	}
	s.fork("flat", 1)
	_, err = s.Engine.CompactSnapshot(s.t.Context(), "deep", "deep", nil)
	s.want(sandbox.ErrInvalid, err, "compaction to itself")
	_, err = s.Engine.CompactSnapshot(s.t.Context(), "deep", "flat", nil)
	s.want(sandbox.ErrConflict, err, "compaction to a tag that is taken")
	_, err = s.Engine.CompactSnapshot(s.t.Context(), "deep", "no/tag", nil)
	s.want(sandbox.ErrInvalid, err, "compaction to a tag that is none")
}

func noDerivation(s suite) {
	for what, c := range map[string]struct {
		req  sandbox.DeriveRequest
		kind error
	}{
		"nothing to do": {sandbox.DeriveRequest{Tag: "d", From: base}, sandbox.ErrInvalid},
		"a tag that is taken": {sandbox.DeriveRequest{Tag: base, From: base, Exec: []string{"echo"}},
			sandbox.ErrConflict},
		"a tag that is none": {sandbox.DeriveRequest{Tag: "no/tag", From: base, Exec: []string{"echo"}},
			sandbox.ErrInvalid},
		"from a snapshot that is not it": {sandbox.DeriveRequest{Tag: "d", From: "none", Exec: []string{"echo"}},
			sandbox.ErrNotFound},
	} {
		_, err := s.Engine.DeriveSnapshot(s.t.Context(), c.req, nil)
		s.want(c.kind, err, what)
	}
	s.wantTags(base)
}

// verification waits for the digests. Verifying without them is a conflict.
func verification(s suite) {
	s.eventually("digests", func() bool {
		r, err := s.Engine.VerifySnapshot(s.t.Context(), base)
		if err != nil {
			s.want(sandbox.ErrConflict, err, "verification without digests")
			return false
		}
		if !r.OK() || r.Tag != base || r.Files == 0 {
			s.t.Errorf("got %+v", r)
		}
		return true
	})
}
