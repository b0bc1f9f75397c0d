package idmap

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRanges(t *testing.T) {
	for line, want := range map[string]bool{
		"n:1:65536": true, "7:1:65536": true, "n:1:70000": true, " n:1:65536 ": true,
		"n:1:65535": false, "m:1:65536": false, "n:1": false, "n:-1:65536": false, "n:0:65536": false,
		"n:4294967295:65536": false, "": false, "n:1:65536:1": false, ":1:65536": false, "n:1:x": false,
	} {
		if _, ok := parseRange(line, "n", "7"); ok != want {
			t.Errorf("%q: %v", line, ok)
		}
	}
}

func TestFirstSufficientRange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subuid")
	if err := os.WriteFile(path, []byte("other:1:65536\nn:100:10\nn:200000:65536\nn:900000:65536\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if first, err := firstOf(path, "n", "7"); err != nil || first != 200000 {
		t.Errorf("got %d, %v", first, err)
	}
	_, err := firstOf(path, "nobody", "8")
	if err == nil || !strings.Contains(err.Error(), "has no range of 65536 for nobody") {
		t.Errorf("got %v", err)
	}
}

// A process of another user keeps its map, also if the caller is root.
func TestProcessesOfOthersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if err := Write(cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("got %v", err)
	}
	if err := Write(1 << 23); err == nil {
		t.Error("a process that cannot exist was mapped")
	}
}

// The map of the initial namespace, which every process without its own namespace has, is written
// already.
func TestWithoutANamespace(t *testing.T) {
	if err := Write(os.Getpid()); err == nil {
		t.Error("this process has new users")
	}
}

func FuzzParseRange(f *testing.F) {
	f.Add("n:1:65536")
	f.Add("7:4294901759:65536")
	f.Fuzz(func(t *testing.T, line string) {
		if first, ok := parseRange(line, "n", "7"); ok && (first == 0 || uint64(first)+65536 > 1<<32) {
			t.Errorf("%q: range from %d", line, first)
		}
	})
}
