package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Meter reads. Close takes back what Open mounted.
type Meter struct {
	proc  procfs.FS
	stats string // kvm in debugfs; empty: KVM's counters cannot be read
	undo  func()
}

// debugfs is where Linux has KVM's counters if it is mounted.
const debugfs = "/sys/kernel/debug"

// Open finds KVM's counters; root mounts debugfs in dir if need be. Who may not
// read them measures without.
func Open(dir string) (Meter, error) {
	m := Meter{undo: func() {}}
	var err error
	if m.proc, err = procfs.NewDefaultFS(); err != nil {
		return m, err
	}
	at := debugfs
	if _, err := os.ReadDir(filepath.Join(at, "kvm")); errors.Is(err, fs.ErrNotExist) && os.Geteuid() == 0 {
		at = filepath.Join(dir, "debug")
		if err := os.MkdirAll(at, 0o700); err != nil {
			return m, err
		}
		if unix.Mount("debugfs", at, "debugfs", 0, "") == nil {
			m.undo = func() { _ = unix.Unmount(at, unix.MNT_DETACH) }
		}
	}
	if _, err := os.ReadDir(filepath.Join(at, "kvm")); err == nil {
		m.stats = filepath.Join(at, "kvm")
	}
	return m, nil
}

// Close unmounts what Open mounted.
func (m Meter) Close() { m.undo() }

// KVM tells whether KVM's counters can be read.
func (m Meter) KVM() bool { return m.stats != "" }

// processes are those of this host.
func (m Meter) processes() (map[int]procfs.ProcStat, error) {
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

// ticksPerSecond is USER_HZ, the same on all of Linux's architectures that matter here.
const ticksPerSecond = 100

func millis(ticks uint) float64 { return float64(ticks) * 1000 / ticksPerSecond }

// Daemon is what a daemon and the VMs that it started have used so far.
type Daemon struct {
	CPUMS      float64 // of the processes, guests' time included
	HostFaults float64 // of the processes
	KVM        bool    // the next two could be read
	Counters           // of VMs that live
}

// Daemon sums up a daemon, the processes that it or forkd-spawn started, and their VMs.
func (m Meter) Daemon(pid int) (Daemon, error) {
	u := Daemon{KVM: m.KVM()}
	all, err := m.processes()
	if err != nil {
		return u, err
	}
	if _, ok := all[pid]; !ok {
		return u, fmt.Errorf("the daemon, process %d, has ended", pid)
	}
	own := map[int]bool{}
	for other, st := range all {
		if !descends(all, other, pid) {
			continue
		}
		own[other] = true
		// And what they have started and that has ended.
		u.CPUMS += millis(st.UTime + st.STime + uint(st.CUTime) + uint(st.CSTime))
		u.HostFaults += float64(st.MinFlt + st.MajFlt + st.CMinFlt + st.CMajFlt)
	}
	vms, err := m.counters()
	for vm, c := range vms {
		if own[vm] {
			u.add(c)
		}
	}
	return u, err
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
