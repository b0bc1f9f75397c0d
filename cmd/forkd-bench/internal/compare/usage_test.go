package compare

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A process stands in for a daemon, its child for a VMM; the counters are files.
func TestUsageIsOfTheDaemonAndItsVMs(t *testing.T) {
	// Between both is one that stands for forkd-spawn.
	child := exec.Command("sh", "-c", "sleep 60 & echo $!; wait")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var vm int
	if _, err := fmt.Fscan(out, &vm); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(vm, unix.SIGKILL); _ = child.Process.Kill(); _ = child.Wait() }()
	m, done, err := openMeter(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	m.stats = t.TempDir()
	write := func(dir, name, value string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(m.stats, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(m.stats, dir, name), []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	own := strconv.Itoa(vm) + "-7"
	write(own, "exits", "100\n")
	write(own, "pf_taken", "40\n")
	write("1-7", "exits", "9999\n") // another's VM
	before, err := m.read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if before.exits != 100 || before.guestFaults != 40 || before.hostFaults <= 0 {
		t.Errorf("%+v", before)
	}
	write(own, "exits", "130\n")
	after, err := m.read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, v := range after.since(before) {
		got[v.Name] = v.V
	}
	if got["kvm_exits"] != 30 || got["guest_faults"] != 0 || got["cpu_ms"] < 0 || got["host_faults"] < 0 {
		t.Errorf("%v", got)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if _, err := m.read(child.Process.Pid); err == nil {
		t.Error("a daemon that has ended was read")
	}
}
