package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheTightestGroupBoundsThreads(t *testing.T) {
	root := t.TempDir()
	leaf := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(dir, file, text string) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{root, filepath.Dir(leaf), leaf} {
		write(dir, "cgroup.controllers", "pids\n")
	}
	write(leaf, "pids.max", "max\n")
	write(leaf, "pids.current", "7\n")
	if used, limit, bounded := Threads(leaf); bounded {
		t.Errorf("without limits: %d of %d", used, limit)
	}
	write(filepath.Dir(leaf), "pids.max", "100\n")
	write(filepath.Dir(leaf), "pids.current", "40\n")
	if used, limit, bounded := Threads(leaf); !bounded || used != 40 || limit != 100 {
		t.Errorf("around it is one: %d of %d, %v", used, limit, bounded)
	}
	write(leaf, "pids.max", "50\n")
	if used, limit, bounded := Threads(leaf); !bounded || used != 7 || limit != 50 {
		t.Errorf("its own has fewer left: %d of %d, %v", used, limit, bounded)
	}
	if _, _, bounded := Threads(t.TempDir()); bounded {
		t.Error("a directory that is no group has a limit")
	}
	if dir := Around(); dir != "" && !isGroup(dir) {
		t.Errorf("this process's groups would be made in %s", dir)
	}
}
