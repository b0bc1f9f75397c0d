package enginetest

import (
	"fmt"
	"maps"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/retention"
)

// ofLabels is a set of labels.
type ofLabels = map[string]string

func (s suite) wantLabels(what string, got, want ofLabels) {
	s.t.Helper()
	if !maps.Equal(got, want) {
		s.t.Errorf("%s: labels %v, want %v", what, got, want)
	}
}

// wantLabelled checks the labels in the answer about one sandbox and in the list.
func (s suite) wantLabelled(id string, want ofLabels) {
	s.t.Helper()
	got, err := s.Engine.Get(id)
	s.must(err)
	s.wantLabels("sandbox", got.Labels, want)
	for _, i := range s.Engine.List() {
		if i.ID == id {
			s.wantLabels("listed sandbox", i.Labels, want)
		}
	}
}

// labelled checks whose labels a sandbox and a snapshot have.
func labelled(s suite) {
	snap, err := s.Engine.CreateSnapshot(s.t.Context(),
		sandbox.CreateRequest{Tag: "labelled", Image: s.Image, Labels: ofLabels{"of": "snapshot"}}, nil)
	s.must(err)
	s.wantLabels("a new snapshot", snap.Labels, ofLabels{"of": "snapshot"})
	s.wantLabels("its description", s.info("labelled").Labels, ofLabels{"of": "snapshot"})

	none := s.fork("labelled", 1)[0]
	s.wantLabelled(none.ID, nil)
	asked := ofLabels{"job": "7", "team": "a b"}
	r, err := s.Engine.Fork(s.t.Context(), sandbox.ForkRequest{Tag: "labelled", N: 2, Labels: asked})
	s.must(err)
	for _, c := range r.Children {
		s.must(c.Err)
		s.wantLabels("a child", c.Info.Labels, asked)
		s.wantLabelled(c.Info.ID, asked)
	}
	source := r.Children[0].Info.ID
	inherits := s.branch(sandbox.BranchRequest{SandboxID: source, Tag: "b1", N: 1})
	s.wantLabels("the snapshot of a branch", inherits.Snapshot.Labels, asked)
	s.wantLabels("the child of a branch", inherits.Fork.Children[0].Info.Labels, asked)
	over := s.branch(sandbox.BranchRequest{SandboxID: source, Tag: "b2", N: 1, Labels: ofLabels{"job": "8", "try": "1"}})
	want := ofLabels{"job": "8", "team": "a b", "try": "1"}
	s.wantLabels("the snapshot of a branch with labels", over.Snapshot.Labels, want)
	s.wantLabels("its child", over.Fork.Children[0].Info.Labels, want)
	s.wantLabelled(source, asked)
	s.wantLabelled(s.fork("b2", 1)[0].ID, nil)

	child := over.Fork.Children[0].Info.ID
	promoted, err := s.Engine.Promote(s.t.Context(), sandbox.PromoteRequest{Child: child, Discard: true})
	s.must(err)
	s.wantLabels("a place keeps its labels", promoted.Info.Labels, asked)
	s.wantLabelled(source, asked)
}

// relabelled checks changes of labels, through a pause and a resume.
func relabelled(s suite) {
	sb := s.fork(base, 1)[0]
	change := func(c labels.Change) sandbox.Info {
		s.t.Helper()
		i, err := s.Engine.LabelSandbox(s.t.Context(), sb.ID, c)
		s.must(err)
		return i
	}
	first := change(labels.Change{Set: ofLabels{"a": "1", "b": "2"}, Remove: []string{"missing"}})
	s.wantLabels("set", first.Labels, ofLabels{"a": "1", "b": "2"})
	_, err := s.Engine.Pause(s.t.Context(), sb.ID, sandbox.PauseOptions{})
	s.must(err)
	s.wantLabelled(sb.ID, ofLabels{"a": "1", "b": "2"})
	change(labels.Change{Set: ofLabels{"a": "3"}, Remove: []string{"b"}})
	s.wantLabelled(sb.ID, ofLabels{"a": "3"})
	s.wantLabels("an earlier answer", first.Labels, ofLabels{"a": "1", "b": "2"})
	_, err = s.Engine.Resume(s.t.Context(), sb.ID)
	s.must(err)
	s.wantLabelled(sb.ID, ofLabels{"a": "3"})
	_, err = s.Engine.Rollback(s.t.Context(), sb.ID, base)
	s.must(err)
	s.wantLabelled(sb.ID, ofLabels{"a": "3"})
	change(labels.Change{Remove: []string{"a"}})
	s.wantLabelled(sb.ID, nil)

	s.branch(sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"})
	info, err := s.Engine.LabelSnapshot(s.t.Context(), "b", labels.Change{Set: ofLabels{"kept": ""}})
	s.must(err)
	s.wantLabels("a snapshot", info.Labels, ofLabels{"kept": ""})
	s.wantLabels("its description", s.info("b").Labels, ofLabels{"kept": ""})
	copied, err := s.Engine.CompactSnapshot(s.t.Context(), "b", "copy", nil)
	s.must(err)
	s.wantLabels("a copy", copied.Labels, ofLabels{"kept": ""})
	_, err = s.Engine.LabelSnapshot(s.t.Context(), "b", labels.Change{Remove: []string{"kept"}})
	s.must(err)
	s.wantLabels("without", s.info("b").Labels, nil)
	s.wantLabels("the copy", s.info("copy").Labels, ofLabels{"kept": ""})
	s.must(s.Engine.DeleteSnapshot(s.t.Context(), "copy", sandbox.DeleteOptions{}))
	_, err = s.Engine.CompactSnapshot(s.t.Context(), "b", "copy", nil)
	s.must(err)
	s.wantLabels("another snapshot of that tag", s.info("copy").Labels, nil)
}

// fullLabels checks a sandbox with all labels that it can have. Its branches still take the rules of retention.
func (s suite) fullLabels() {
	full := ofLabels{}
	for i := range labels.MaxLabels {
		full[fmt.Sprintf("k%02d", i)] = ""
	}
	res, err := s.Engine.Fork(s.t.Context(), sandbox.ForkRequest{Tag: base, N: 1, Labels: full})
	s.must(err)
	id, rules := res.Children[0].Info.ID, ofLabels{retention.Expires: "24h", retention.KeepLast: "3"}
	_, err = s.Engine.Branch(s.t.Context(), sandbox.BranchRequest{SandboxID: id, Tag: "full", Labels: rules})
	s.must(err)
	s.wantLabels("a branch with rules", s.info("full").Labels, labels.Merge(full, rules))
	_, err = s.Engine.LabelSnapshot(s.t.Context(), "full", labels.Change{Set: ofLabels{retention.Pin: "true"}})
	s.must(err)
	more := sandbox.BranchRequest{SandboxID: id, Tag: "more", Labels: ofLabels{"more": ""}}
	_, err = s.Engine.Branch(s.t.Context(), more)
	s.want(sandbox.ErrInvalid, err, "a branch with one label more")
	s.must(s.Engine.DeleteSnapshot(s.t.Context(), "full", sandbox.DeleteOptions{Force: true}))
	s.must(s.Engine.Kill(s.t.Context(), id))
}

// noLabels checks labels that are refused. The old ones stay.
func noLabels(s suite) {
	s.fullLabels()
	sb := s.fork(base, 1)[0]
	for what, bad := range map[string]ofLabels{
		"a newline":      {"a": "b\nc"},
		"an escape":      {"a": "\x1b[31m"},
		"bad UTF-8":      {"a": "\xff"},
		"a long value":   {"a": strings.Repeat("v", labels.MaxValue+1)},
		"an invalid key": {"a b": ""},
		"no key":         {"": "x"},
	} {
		_, err := s.Engine.Fork(s.t.Context(), sandbox.ForkRequest{Tag: base, N: 1, Labels: bad})
		s.want(sandbox.ErrInvalid, err, "a fork with "+what)
		_, err = s.Engine.Branch(s.t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b", Labels: bad})
		s.want(sandbox.ErrInvalid, err, "a branch with "+what)
		_, err = s.Engine.CreateSnapshot(s.t.Context(), sandbox.CreateRequest{Tag: "b", Image: s.Image, Labels: bad}, nil)
		s.want(sandbox.ErrInvalid, err, "a snapshot with "+what)
		_, err = s.Engine.DeriveSnapshot(s.t.Context(), sandbox.DeriveRequest{Tag: "b", From: base, Exec: []string{"true"},
			Labels: bad}, nil)
		s.want(sandbox.ErrInvalid, err, "a derivation with "+what)
		_, err = s.Engine.LabelSandbox(s.t.Context(), sb.ID, labels.Change{Set: bad})
		s.want(sandbox.ErrInvalid, err, "a sandbox with "+what)
		_, err = s.Engine.LabelSnapshot(s.t.Context(), base, labels.Change{Set: bad})
		s.want(sandbox.ErrInvalid, err, "a change of a snapshot to "+what)
	}
	one := labels.Change{Set: ofLabels{"a": ""}}
	_, err := s.Engine.LabelSandbox(s.t.Context(), "sb-none", one)
	s.want(sandbox.ErrNotFound, err, "a sandbox that is not there")
	_, err = s.Engine.LabelSnapshot(s.t.Context(), "none", one)
	s.want(sandbox.ErrNotFound, err, "a snapshot that is not there")
	_, err = s.Engine.LabelSandbox(s.t.Context(), sb.ID, labels.Change{})
	s.want(sandbox.ErrInvalid, err, "no change")
	s.wantLabelled(sb.ID, nil)
	s.wantLabels("base", s.info(base).Labels, nil)
	s.wantTags(base)
	s.End(sb.ID)
	s.eventually("failed sandbox", func() bool {
		i, err := s.Engine.Get(sb.ID)
		return err == nil && i.Status == sandbox.StatusFailed
	})
	_, err = s.Engine.LabelSandbox(s.t.Context(), sb.ID, one)
	s.want(sandbox.ErrGuestGone, err, "a failed sandbox")
}
