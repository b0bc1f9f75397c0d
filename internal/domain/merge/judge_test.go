package merge

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/guestdiff"
	"github.com/forkd/forkd/internal/leaf/guestdelta"
)

// entry reads an entry: "-" is none, "d" a folder, "l:TARGET" a link, "p" a pipe, and a number a file
// of that size. "+x" after it makes it executable, "+u" gives it to another user.
func entry(s string) *guestdiff.Entry {
	what, bit, _ := strings.Cut(s, "+")
	e := &guestdiff.Entry{File: guestdelta.File{Mode: 0o644, Size: int64(len(what))}}
	switch {
	case what == "-":
		return nil
	case what == "d":
		e.Mode = fs.ModeDir | 0o755
	case what == "p":
		e.Mode = fs.ModeNamedPipe | 0o644
	case strings.HasPrefix(what, "l:"):
		e.Mode, e.Target = fs.ModeSymlink|0o777, what[2:]
	}
	if bit == "x" {
		e.Mode |= 0o111
	} else if bit == "u" {
		e.UID = 7
	}
	return e
}

// changes reads lines of: path, base, ours, theirs. A file's size is the length of its word, so files
// with equal words are equal and need no guest.
func changes(lines string) (c guestdiff.Changes) {
	for line := range strings.Lines(lines) {
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		c.Paths = append(c.Paths, guestdiff.Three{Path: w[0], Base: entry(w[1]), Ours: entry(w[2]), Theirs: entry(w[3]),
			OursChanged: w[1] != w[2], TheirsChanged: w[1] != w[3]})
	}
	return c
}

func decide(t *testing.T, lines string, req Request) string {
	t.Helper()
	p := plan{req: req}
	if err := p.judgeAll(t.Context(), changes(lines)); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range p.res.Changes {
		out = append(out, c.Action+" "+c.Path)
	}
	for _, c := range p.res.Conflicts {
		out = append(out, strings.TrimSpace("CONFLICT ("+c.Kind+") "+c.Path+" "+string(c.Resolved)))
	}
	for _, s := range p.res.Skipped {
		out = append(out, "skipped "+s.Path)
	}
	return strings.Join(out, ", ")
}

func TestDecisions(t *testing.T) {
	for name, c := range map[string]struct{ lines, want string }{
		"one side":                     {"/a 1 1 22\n/b - - 1\n/c 1 1 -\n/d 1 22 1\n/e - 1 -", "modified /a, added /b, deleted /c"},
		"both the same":                {"/a 1 - -\n/l l:x l:y l:y\n/d - d d", ""},
		"modify and delete":            {"/a 1 22 -\n/b 1 - 22", "CONFLICT (modify/delete) /a, CONFLICT (modify/delete) /b"},
		"both added":                   {"/l - l:x l:y\n/d - d d+x", "CONFLICT (add/add) /l"},
		"both added, modes":            {"/d - d d+u", "CONFLICT (add/add) /d"},
		"links":                        {"/l l:x l:y l:z\n/m l:x l:x+u l:z", "modified /m, CONFLICT (content) /l"},
		"types":                        {"/a 1 l:x d", "CONFLICT (type) /a"},
		"mode here, owner there":       {"/d d d+x d+u", "modified /d"},
		"special files":                {"/p - - p\n/q p p -\n/r 1 p 22\n/s - p -", "skipped /p, skipped /q, skipped /r"},
		"a sandbox's own":              {"/etc/hostname 1 22 333\n/etc/ssh/ssh_host_rsa_key 1 1 22\n/etc/ssh/x 1 1 22", "modified /etc/ssh/x"},
		"a folder that goes":           {"/d d d -\n/d/a 1 1 -\n/d/s d d -", "deleted /d, deleted /d/a, deleted /d/s"},
		"a folder with another entry":  {"/d d d -\n/d/a 1 1 -\n/d/b - 1 -", "deleted /d/a"},
		"a folder with a changed file": {"/d d d -\n/d/a 1 22 -", "CONFLICT (modify/delete) /d/a"},
		"a folder that ours removed":   {"/d d - d\n/d/a 1 - 1\n/d/b - - 1", "added /d/b"},
		"a folder becomes a file":      {"/d d d 22\n/d/a 1 1 -", "modified /d, deleted /d/a"},
		"but ours added to it":         {"/d d d 22\n/d/a 1 1 -\n/d/b - 1 -", "deleted /d/a, CONFLICT (file/directory) /d"},
		"a file becomes a folder":      {"/d 1 1 d\n/d/a - - 1", "modified /d, added /d/a"},
		"ours made it a file":          {"/d d 22 d\n/d/a 1 - 1\n/d/b - - 1", "CONFLICT (file/directory) /d/b"},
		"similar names are not in it":  {"/d d 22 d\n/d/b - - 1\n/dd/b - - 1", "added /dd/b, CONFLICT (file/directory) /d/b"},
		"a link's text":                {"/l - - l:\uFFFD", "skipped /l"},
	} {
		if got := decide(t, c.lines, Request{}); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestResolutions(t *testing.T) {
	const lines = "/a 1 22 -\n/b 1 - 22\n/d 1 d 333\n/d/x - 1 -\n/t 1 22 d\n/t/y - - 1"
	for name, c := range map[string]struct {
		req  Request
		want string
	}{
		"ours": {Request{Resolve: Ours}, "CONFLICT (modify/delete) /a ours, CONFLICT (modify/delete) /b ours, " +
			"CONFLICT (type) /d ours, CONFLICT (type) /t ours, CONFLICT (file/directory) /t/y ours"},
		"theirs": {Request{Resolve: Theirs}, "deleted /a, added /b, modified /t, added /t/y, CONFLICT (modify/delete) /a theirs, " +
			"CONFLICT (modify/delete) /b theirs, CONFLICT (type) /d, CONFLICT (type) /t theirs"},
		"each": {Request{Resolve: Ours, Paths: map[string]Side{"/b": Theirs, "/other": Ours}}, "added /b, " +
			"CONFLICT (modify/delete) /a ours, CONFLICT (modify/delete) /b theirs, CONFLICT (type) /d ours, " +
			"CONFLICT (type) /t ours, CONFLICT (file/directory) /t/y ours"},
	} {
		if got := decide(t, lines, c.req); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestTheNearestCommonAncestor(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	e := &ancestors{snaps: []sandbox.SnapshotInfo{
		{Tag: "py", ContentHash: "p", Status: sandbox.SnapshotReady},
		{Tag: "one", ContentHash: "1", ParentTag: "py", Ancestors: []string{"py"}, BranchedFrom: "sb-a", CreatedAt: day(1), Status: sandbox.SnapshotReady},
		{Tag: "two", ContentHash: "2", ParentTag: "py", Ancestors: []string{"py"}, BranchedFrom: "sb-a", CreatedAt: day(2), Status: sandbox.SnapshotReady},
		{Tag: "alone", ContentHash: "x", Status: sandbox.SnapshotReady},
	}, all: map[string]sandbox.Info{
		"sb-a": {ID: "sb-a", SnapshotTag: "py", SnapshotHash: "p"},
		"sb-1": {ID: "sb-1", SnapshotTag: "one", SnapshotHash: "1"},
		"sb-2": {ID: "sb-2", SnapshotTag: "two", SnapshotHash: "2"},
		"sb-r": {ID: "sb-r", SnapshotTag: "two", SnapshotHash: "2", RolledBackTo: "py", RolledBackHash: "p"},
		"sb-o": {ID: "sb-o", SnapshotTag: "two", SnapshotHash: "of another snapshot"},
		"sb-x": {ID: "sb-x", SnapshotTag: "alone", SnapshotHash: "x"},
	}}
	for _, c := range []struct{ ours, theirs, want string }{
		{"sb-a", "sb-2", "two"}, {"sb-2", "sb-a", "two"}, {"sb-a", "sb-1", "one"}, {"sb-1", "sb-2", "py"},
		{"sb-r", "sb-2", "py"}, {"sb-a", "two", "two merged"}, {"sb-1", "two", "py"}, {"sb-1", "one", "one merged"},
		{"sb-1", "sb-x", ""}, {"sb-1", "sb-o", ""}, {"sb-x", "py", ""},
	} {
		n, err := find(t.Context(), e, Request{Ours: c.ours, Theirs: c.theirs})
		got := n.base.Tag
		if n.merged {
			got += " merged"
		}
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("%s and %s: %q, %v; want %q", c.ours, c.theirs, got, err, c.want)
		}
	}
}

// ancestors has snapshots and sandboxes for find.
type ancestors struct {
	Engine
	snaps []sandbox.SnapshotInfo
	all   map[string]sandbox.Info
}

func (a *ancestors) Get(id string) (sandbox.Info, error) {
	if i, ok := a.all[id]; ok {
		return i, nil
	}
	return sandbox.Info{}, sandbox.Errorf(sandbox.ErrNotFound, "", "none")
}

func (a *ancestors) ListSnapshots(context.Context) ([]sandbox.SnapshotInfo, error) {
	return a.snaps, nil
}

func (a *ancestors) SnapshotBrief(tag string) (sandbox.SnapshotBrief, error) {
	for _, s := range a.snaps {
		if s.Tag == tag {
			return sandbox.SnapshotBrief{Tag: tag, ContentHash: s.ContentHash}, nil
		}
	}
	return sandbox.SnapshotBrief{}, sandbox.Errorf(sandbox.ErrNotFound, "", "none")
}
