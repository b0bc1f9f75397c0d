package usage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A process stands for the daemon, its child for a VMM. The counters are files.
func TestUsageIsOfTheDaemonAndItsVMs(t *testing.T) {
	// The shell between them stands for forkd-spawn.
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
	m, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
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
	write("1-7", "exits", "9999\n") // a VM of another process
	before, err := m.Daemon(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if before.Exits != 100 || before.GuestFaults != 40 || before.HostFaults <= 0 {
		t.Errorf("%+v", before)
	}
	write(own, "exits", "130\n")
	after, err := m.Daemon(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after.Exits != 130 || after.GuestFaults != 40 || after.CPUMS < before.CPUMS || after.HostFaults < before.HostFaults {
		t.Errorf("%+v after %+v", after, before)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if _, err := m.Daemon(child.Process.Pid); err == nil {
		t.Error("a daemon that has ended was read")
	}
}

// A process with the VMM's name stands for a VMM.
func TestVMMsAreReadEachForItself(t *testing.T) {
	dir := t.TempDir()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	fake := filepath.Join(dir, program)
	if err := os.WriteFile(fake, b, 0o755); err != nil {
		t.Fatal(err)
	}
	vm := exec.Command(fake, "60")
	if err := vm.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = vm.Process.Kill(); _ = vm.Wait() }()
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, stats := range []string{"", t.TempDir()} {
		m.stats = stats
		list, err := m.VMMs()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list, func(v VMM) bool { return v.PID == vm.Process.Pid })
		if i < 0 || (list[i].Counters != nil) != (stats != "") {
			t.Errorf("with counters in %q: %+v", stats, list)
		}
	}
}

func TestBetweenIsTheMeanOfThoseThatLive(t *testing.T) {
	before := []VMM{{PID: 1, UserMS: 10, SystemMS: 20, Counters: &Counters{100, 5}}, {PID: 3, UserMS: 500}}
	after := []VMM{{PID: 1, UserMS: 20, SystemMS: 40, Counters: &Counters{160, 25}},
		{PID: 2, UserMS: 30, SystemMS: 20, Counters: &Counters{140, 0}}, {PID: 4, UserMS: 900}}
	if got, want := Between(before, after, []int{1, 2, 9}), (Mean{N: 2, UserMS: 20, SystemMS: 20,
		Counters: &Counters{100, 10}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := Between(before, after, []int{1, 4}); got.N != 2 || got.Counters != nil {
		t.Errorf("KVM's counters of one are not known, yet %+v", got)
	}
	if got := Between(before, after, []int{9}); got.N != 0 || got.UserMS != 0 {
		t.Errorf("none lives, yet %+v", got)
	}
}
