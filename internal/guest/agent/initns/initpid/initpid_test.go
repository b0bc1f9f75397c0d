package initpid

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFind(t *testing.T) {
	const first, other = "Name:\tinit\nPid:\t140\nNSpid:\t140\t1\n", "Name:\tx\nNSpid:\t140\n"
	for _, tc := range []struct {
		name, file, status string
		bus                bool
		found              bool
	}{
		{"no init has run", "", first, true, false},
		{"an init runs", "140", first, true, true},
		{"an init without D-Bus", "140\n", first, false, true},
		{"an init has ended", "140", "", true, false},
		{"another process has its number", "140", other, true, false},
		{"a process of a container below the guest", "140", "NSpid:\t140\t17\n", true, false},
		{"a damaged file", "../1", first, true, false},
		{"the agent", "1", first, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range map[string]string{File: tc.file, "/proc/140/status": tc.status} {
				if text == "" {
					continue
				}
				write(t, filepath.Join(root, name), text)
			}
			if tc.bus {
				write(t, filepath.Join(root, bus), "")
			}
			pid, found := find(root)
			if found != tc.found || found && pid != 140 {
				t.Errorf("got %d, %v, want %v", pid, found, tc.found)
			}
			if env := environ(root); len(env) == 1 != (tc.found && tc.bus) {
				t.Errorf("the variables are %v", env)
			}
		})
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
