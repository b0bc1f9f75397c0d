package sandbox

import (
	"errors"
	"testing"
)

const token = "0123456789abcdef0123456789abcdef"

func TestTreeLimits(t *testing.T) {
	l := TreeLimits{Size: 10, Depth: 2, MemoryMiB: 1000}
	for _, c := range []struct {
		name string
		kin  Kin
		now  TreeUsage
		n    int
		want error
	}{
		{"without leave", Kin{}, TreeUsage{1, 100}, 1, ErrForbidden},
		{"a child without leave", Kin{Parent: "a", Depth: 1}, TreeUsage{1, 100}, 1, ErrForbidden},
		{"all that may be", Kin{MayFork: true}, TreeUsage{1, 100}, 9, nil},
		{"one too many", Kin{MayFork: true}, TreeUsage{1, 100}, 10, ErrQuota},
		{"beside others", Kin{MayFork: true}, TreeUsage{9, 900}, 2, ErrQuota},
		{"the deepest", Kin{MayFork: true, Depth: 1}, TreeUsage{2, 200}, 1, nil},
		{"too deep", Kin{MayFork: true, Depth: 2}, TreeUsage{2, 200}, 1, ErrQuota},
		{"too much memory", Kin{MayFork: true}, TreeUsage{2, 950}, 1, ErrQuota},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := l.Check(c.kin, c.now, c.n, 100); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
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
