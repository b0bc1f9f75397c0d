package sandbox

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

const token = "0123456789abcdef0123456789abcdef"

func wantCode(t *testing.T, err error, want forkwire.Code) {
	t.Helper()
	var e *forkwire.Error
	if want == "" && err == nil {
		return
	}
	if !errors.As(err, &e) || e.Code != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestTreeLimits(t *testing.T) {
	l := TreeLimits{Size: 10, Depth: 2, MemoryMiB: 1000}
	for _, c := range []struct {
		name string
		kin  Kin
		now  TreeUsage
		n    int
		want forkwire.Code
	}{
		{"without leave", Kin{}, TreeUsage{1, 100}, 1, forkwire.Denied},
		{"a child without leave", Kin{Parent: "a", Depth: 1}, TreeUsage{1, 100}, 1, forkwire.Denied},
		{"all that may be", Kin{MayFork: true}, TreeUsage{1, 100}, 9, ""},
		{"one too many", Kin{MayFork: true}, TreeUsage{1, 100}, 10, forkwire.Limit},
		{"beside others", Kin{MayFork: true}, TreeUsage{9, 900}, 2, forkwire.Limit},
		{"the deepest", Kin{MayFork: true, Depth: 1}, TreeUsage{2, 200}, 1, ""},
		{"too deep", Kin{MayFork: true, Depth: 2}, TreeUsage{2, 200}, 1, forkwire.Limit},
		{"too much memory", Kin{MayFork: true}, TreeUsage{2, 950}, 1, forkwire.Limit},
	} {
		t.Run(c.name, func(t *testing.T) { wantCode(t, l.Check(c.kin, c.now, c.n, 100), c.want) })
	}
}

func TestKin(t *testing.T) {
	root := Kin{MayFork: true}
	child := root.Child("a", token)
	grand := child.Child("b", token)
	if child.Parent != "a" || child.Root != "a" || child.Depth != 1 || !child.MayFork {
		t.Errorf("child: %+v", child)
	}
	if grand.Parent != "b" || grand.Root != "a" || grand.Depth != 2 || grand.RootOf("c") != "a" || root.RootOf("a") != "a" {
		t.Errorf("grandchild: %+v", grand)
	}
}
