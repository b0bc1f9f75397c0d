package lineage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

// snaps parses "tag", "tag<parent" or "tag<parent@sandbox".
func snaps(words ...string) []api.SnapshotInfo {
	var out []api.SnapshotInfo
	for _, w := range words {
		tag, rest, isDiff := strings.Cut(w, "<")
		parent, from, branched := strings.Cut(rest, "@")
		s := api.SnapshotInfo{Tag: tag}
		if isDiff {
			s.ParentTag = &parent
		}
		if branched {
			s.BranchedFrom = &from
		}
		out = append(out, s)
	}
	return out
}

// sbs parses "id<tag".
func sbs(words ...string) []api.SandboxInfo {
	var out []api.SandboxInfo
	for _, w := range words {
		id, tag, _ := strings.Cut(w, "<")
		out = append(out, api.SandboxInfo{ID: id, SnapshotTag: tag})
	}
	return out
}

func drawn(roots []*Node, most int) string {
	var b strings.Builder
	for _, l := range Draw(roots, most) {
		switch {
		case l.Sandbox != nil:
			fmt.Fprintln(&b, l.Branch+l.Sandbox.ID)
		case l.More > 0:
			fmt.Fprintf(&b, "%s+%d\n", l.Branch, l.More)
		case l.Node.Snapshot == nil:
			fmt.Fprintln(&b, l.Branch+l.Node.Tag+" deleted")
		default:
			fmt.Fprintln(&b, l.Branch+l.Node.Tag)
		}
	}
	return b.String()
}

func TestTrees(t *testing.T) {
	for _, c := range []struct {
		name      string
		snapshots []api.SnapshotInfo
		sandboxes []api.SandboxInfo
		want      string
	}{
		{"nothing", nil, nil, ""},
		{"two roots", snaps("b", "a"), nil, "a\nb\n"},
		{"a chain with sandboxes", snaps("py", "leaf<mid@s2", "mid<py@s1", "side<py"), sbs("s2<mid", "s1<py", "s3<leaf"), `py
├── s1
├── mid
│   ├── s2
│   └── leaf
│       └── s3
└── side
`},
		{"a parent that was deleted", snaps("mid<py"), sbs("s1<py", "s2<gone"), "gone deleted\n└── s2\npy deleted\n├── s1\n└── mid\n"},
		{"many sandboxes, one of them a source", snaps("py", "mid<py@s5"), sbs("s1<py", "s2<py", "s3<py", "s4<py", "s5<py"), "py\n├── s1\n├── s2\n├── s5\n├── +2\n└── mid\n"},
		{"a circle", snaps("a<b", "b<a", "c<a"), nil, "a\n└── c\nb\n"},
		{"its own parent", snaps("a<a"), nil, "a\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := drawn(Build(c.snapshots, c.sandboxes), 2); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestFind(t *testing.T) {
	roots := Build(snaps("py", "mid<py", "leaf<mid"), nil)
	if n := Find(roots, "mid"); n == nil || len(n.Children) != 1 || n.Children[0].Tag != "leaf" {
		t.Errorf("got %+v", n)
	}
	if Find(roots, "none") != nil {
		t.Error("found what is not there")
	}
}
