package admission

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTheMemoryOfAContainerIsItsCgroups(t *testing.T) {
	group := t.TempDir()
	for file, text := range map[string]string{"cgroup.controllers": "memory\n", "memory.max": "67108864\n",
		"memory.current": "25165824\n"} {
		if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := ThisHost(t.TempDir(), group, time.Now)
	f, err := h.Facts()
	if err != nil || f.MemoryTotal != 64<<20 || f.MemoryAvailable != 40<<20 {
		t.Errorf("%d of %d bytes, %v", f.MemoryAvailable, f.MemoryTotal, err)
	}
	if err := os.WriteFile(filepath.Join(group, "memory.max"), []byte("4611686018427387904\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if f, err := h.Facts(); err != nil || f.MemoryTotal >= 1<<50 || f.MemoryAvailable > f.MemoryTotal {
		t.Errorf("more than the host has: %d of %d bytes, %v", f.MemoryAvailable, f.MemoryTotal, err)
	}
}
