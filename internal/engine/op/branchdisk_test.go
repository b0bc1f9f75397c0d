package op

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/engine/vmproc"
)

func TestResolveKeepsTheFilesOfDisksThatWereSwitched(t *testing.T) {
	dir := t.TempDir()
	next := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	switched, stayed, unknown := next("switched"), next("stayed"), next("unknown")
	got := resolve([]vmproc.Disk{
		{Overlay: "a", Next: switched, Generation: 1},
		{Overlay: "b", Next: stayed, Generation: 1},
		{Overlay: "c", Generation: 1},
		{Overlay: "d", Next: unknown, Generation: 1},
	}, []int{2, 1, 7})
	if d := got[0]; d.Overlay != switched || d.Generation != 2 || !slices.Equal(d.Frozen, []string{"a"}) {
		t.Errorf("the disk that was switched: %+v", d)
	}
	for i, overlay := range []string{"b", "c", "d"} {
		if d := got[i+1]; d.Overlay != overlay || d.Generation != 1 || len(d.Frozen) > 0 || d.Next != "" {
			t.Errorf("disk %d, which was not switched: %+v", i+1, d)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || !slices.Equal(left, []string{switched}) {
		t.Errorf("files %v, %v, want only %s", left, err, switched)
	}
}
