package fairserver

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEachCPUsServerIsSwitchedOff(t *testing.T) {
	root := t.TempDir()
	if err := off(root); err != nil {
		t.Errorf("a kernel without them: %v", err)
	}
	for _, cpu := range []string{"cpu0", "cpu1", "cpu12"} {
		dir := filepath.Join(root, "sched", "fair_server", cpu)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"runtime", "period"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("50000000\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := off(root); err != nil {
		t.Fatal(err)
	}
	for _, cpu := range []string{"cpu0", "cpu1", "cpu12"} {
		for name, want := range map[string]string{"runtime": "0", "period": "50000000\n"} {
			got, err := os.ReadFile(filepath.Join(root, "sched", "fair_server", cpu, name))
			if err != nil || string(got) != want {
				t.Errorf("%s of %s is %q, %v", name, cpu, got, err)
			}
		}
	}
}

func TestOneThatRefusesIsTold(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "sched", "fair_server", "cpu0", "runtime"), 0o755); err != nil {
		t.Fatal(err)
	}
	if off(root) == nil {
		t.Error("no error")
	}
}
