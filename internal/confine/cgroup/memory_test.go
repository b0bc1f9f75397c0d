package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheTightestGroupsBoundMemory(t *testing.T) {
	root := t.TempDir()
	pod := filepath.Join(root, "pod")
	container := filepath.Join(pod, "container")
	if err := os.MkdirAll(container, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(dir string, files map[string]string) {
		for file, text := range files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, dir := range []string{root, pod, container} {
		write(dir, map[string]string{"cgroup.controllers": "memory\n", "memory.max": "max\n", "memory.current": "700\n"})
	}
	want := func(why string, available, limit int64, bounded bool) {
		t.Helper()
		if a, l, b := MemoryAround(container); a != available || l != limit || b != bounded {
			t.Errorf("%s: %d of %d, %v, want %d of %d, %v", why, a, l, b, available, limit, bounded)
		}
	}
	want("without limits", 0, 0, false)
	write(container, map[string]string{"memory.max": "1000\n"})
	want("without memory.stat", 300, 1000, true)
	write(container, map[string]string{"memory.stat": "anon 400\ninactive_file 100\nactive_file 50\nslab_reclaimable 7\nshmem 20\n"})
	want("caches can be freed", 457, 1000, true)
	write(pod, map[string]string{"memory.max": "2000\n", "memory.current": "1900\n"})
	want("the pod has less available", 100, 1000, true)
	write(container, map[string]string{"memory.max": "600\n", "memory.stat": "anon 700\n"})
	want("more is used than allowed", 0, 600, true)
	write(container, map[string]string{"memory.stat": "inactive_file 99999\nactive_file broken\n"})
	write(pod, map[string]string{"memory.max": "max\n"})
	want("the statistics are wrong", 600, 600, true)
	if _, _, bounded := MemoryAround(t.TempDir()); bounded {
		t.Error("a directory outside the hierarchy has a limit")
	}
}
