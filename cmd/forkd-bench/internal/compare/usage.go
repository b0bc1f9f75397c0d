package compare

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// usage is what a daemon and the VMs that it started have used so far.
type usage struct {
	kvm         bool    // its counters could be read
	exits       float64 // of VMs that live
	guestFaults float64 // page faults that left the guest, of VMs that live
	hostFaults  float64 // of the processes
	cpuMS       float64 // of the processes, guests' time included
}

// since are the figures of a lap. Without debugfs there are none of KVM.
func (u usage) since(before usage) []Value {
	values := []Value{{"cpu_ms", u.cpuMS - before.cpuMS}, {"host_faults", u.hostFaults - before.hostFaults}}
	if u.kvm {
		values = append(values, Value{"kvm_exits", u.exits - before.exits},
			Value{"guest_faults", u.guestFaults - before.guestFaults})
	}
	return values
}

// ticksPerSecond is USER_HZ, the same on all of Linux's architectures that matter here.
const ticksPerSecond = 100

// meter reads usage.
type meter struct {
	proc  procfs.FS
	stats string // kvm in debugfs; empty: KVM's counters cannot be read
}

// read sums up the daemon, the processes that it or forkd-spawn started, and their VMs.
func (m meter) read(daemon int) (usage, error) {
	var u usage
	all, err := m.processes()
	if err != nil {
		return u, err
	}
	if _, ok := all[daemon]; !ok {
		return u, fmt.Errorf("the daemon, process %d, has ended", daemon)
	}
	own := map[int]bool{}
	for pid, st := range all {
		if !descends(all, pid, daemon) {
			continue
		}
		own[pid] = true
		// And what they have started and that has ended.
		ticks, faults := st.UTime+st.STime, st.MinFlt+st.MajFlt
		ticks, faults = ticks+uint(st.CUTime)+uint(st.CSTime), faults+st.CMinFlt+st.CMajFlt
		u.cpuMS += float64(ticks) * 1000 / ticksPerSecond
		u.hostFaults += float64(faults)
	}
	err = m.kvm(own, &u)
	return u, err
}

// processes are those of this host.
func (m meter) processes() (map[int]procfs.ProcStat, error) {
	procs, err := m.proc.AllProcs()
	if err != nil {
		return nil, err
	}
	all := make(map[int]procfs.ProcStat, len(procs))
	for _, p := range procs {
		if st, err := p.Stat(); err == nil { // else it has ended since
			all[st.PID] = st
		}
	}
	return all, nil
}

// descends tells whether a process is the ancestor, or one that it started, over as many as may be between.
func descends(all map[int]procfs.ProcStat, pid, ancestor int) bool {
	for range len(all) {
		if pid == ancestor {
			return true
		}
		st, ok := all[pid]
		if !ok {
			return false
		}
		pid = st.PPID
	}
	return false
}

// kvm adds the counters of the VMs of some processes. KVM has a directory for each
// VM, called after the thread that made it.
func (m meter) kvm(own map[int]bool, u *usage) error {
	if m.stats == "" {
		return nil
	}
	u.kvm = true
	dirs, err := os.ReadDir(m.stats)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		thread, _, ok := strings.Cut(d.Name(), "-")
		if !ok || !d.IsDir() || !own[processOf(thread)] {
			continue
		}
		for name, sum := range map[string]*float64{"exits": &u.exits, "pf_taken": &u.guestFaults} {
			n, err := readCounter(filepath.Join(m.stats, d.Name(), name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // the VM has ended since, or another architecture
				return err
			}
			*sum += n
		}
	}
	return nil
}

// processOf is the process that a thread is of; 0: it has ended.
func processOf(thread string) int {
	b, err := os.ReadFile(filepath.Join("/proc", thread, "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Tgid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(v))
			return pid
		}
	}
	return 0
}

func readCounter(path string) (float64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
}

// debugfs is where Linux has KVM's counters if it is mounted.
const debugfs = "/sys/kernel/debug"

// openMeter finds KVM's counters; root mounts them in dir if need be. Who may not
// read them measures without.
func openMeter(dir string) (m meter, closeMeter func(), err error) {
	closeMeter = func() {}
	if m.proc, err = procfs.NewDefaultFS(); err != nil {
		return m, closeMeter, err
	}
	at := debugfs
	if _, err := os.ReadDir(filepath.Join(at, "kvm")); errors.Is(err, fs.ErrNotExist) && os.Geteuid() == 0 {
		at = filepath.Join(dir, "debug")
		if err := os.MkdirAll(at, 0o700); err != nil {
			return m, closeMeter, err
		}
		if unix.Mount("debugfs", at, "debugfs", 0, "") == nil {
			closeMeter = func() { _ = unix.Unmount(at, unix.MNT_DETACH) }
		}
	}
	if _, err := os.ReadDir(filepath.Join(at, "kvm")); err == nil {
		m.stats = filepath.Join(at, "kvm")
	}
	return m, closeMeter, nil
}
