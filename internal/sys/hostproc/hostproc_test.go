package hostproc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// plant writes a file below a fake /proc.
func plant(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A program's name may contain spaces and parentheses.
func TestStartTimeOfALiveProcess(t *testing.T) {
	const tail = " S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1000 100 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
	root := t.TempDir()
	plant(t, root, "42/stat", "42 (a) b (c)"+tail)
	if st, err := stat(root, 42); err != nil || st.Starttime != 4711 || !runs(root, 42, 4711) || runs(root, 42, 4712) {
		t.Errorf("got %d, %v", st.Starttime, err)
	}
	busy := strings.Replace(tail, "4194560 1 0 0 0 0 0", "4194560 1 0 0 0 250 75", 1)
	plant(t, root, "45/stat", "45 (a)"+busy)
	if st, err := stat(root, 45); err != nil || cpuTime(st) != 3250*time.Millisecond {
		t.Errorf("CPU time is %s, %v", cpuTime(st), err)
	}
	for name, bad := range map[string]string{
		"empty": "", "no name": "43 (x", "cut off": "43 (x) S 1", "a zombie": "43 (x)" + strings.Replace(tail, " S", " Z", 1),
	} {
		plant(t, root, "43/stat", bad)
		if runs(root, 43, 4711) {
			t.Errorf("%s is taken for a process that runs", name)
		}
	}
	if _, err := stat(root, 44); !errors.Is(err, ErrGone) {
		t.Errorf("a process that is not there: %v", err)
	}
}

func TestStartTimeIsTheSameEachTime(t *testing.T) {
	first, err := StartTime(os.Getpid())
	if err != nil || first == 0 {
		t.Fatalf("own start time is %d, %v", first, err)
	}
	if again, err := StartTime(os.Getpid()); err != nil || again != first || !Runs(os.Getpid(), first) {
		t.Errorf("then it is %d, %v", again, err)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := StartTime(cmd.Process.Pid); !errors.Is(err, ErrGone) {
		t.Errorf("a process that has ended: %v", err)
	}
}

func TestMemory(t *testing.T) {
	total, err := MemTotal()
	if err != nil || total <= 0 {
		t.Fatalf("total is %d, %v", total, err)
	}
	if free, err := MemAvailable(); err != nil || free <= 0 || free > total {
		t.Errorf("available is %d of %d, %v", free, total, err)
	}
	root := t.TempDir()
	plant(t, root, "meminfo", "MemTotal:       16384 kB\n")
	m, err := meminfo(root)
	if got, err := field("MemTotal", m.MemTotalBytes, err); err != nil || got != 16<<20 {
		t.Errorf("16384 kB are %d, %v", got, err)
	}
	if _, err := field("MemAvailable", m.MemAvailableBytes, err); err == nil {
		t.Error("a figure that is not there is taken for one")
	}
}

func TestOwnMemory(t *testing.T) {
	root := t.TempDir()
	plant(t, root, "42/status", "Name:\tforkd-vmm\nRssAnon:\t    5120 kB\nRssFile:\t  90000 kB\nVmPTE:\t     600 kB\n")
	if got, err := ownMemory(root, 42); err != nil || got != (5120+600)<<10 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := ownMemory(root, 43); !errors.Is(err, ErrGone) {
		t.Errorf("got %v", err)
	}
	if got, err := OwnMemory(os.Getpid()); err != nil || got < 1<<20 {
		t.Errorf("this process has %d bytes, %v", got, err)
	}
}

func TestBootID(t *testing.T) {
	if id := BootID(); len(id) != 36 {
		t.Errorf("boot ID is %q", id)
	}
}
