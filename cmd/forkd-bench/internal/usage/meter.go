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

// Meter reads the usage. Close removes the mount of Open.
type Meter struct {
	proc  procfs.FS
	stats string // the kvm directory in debugfs; empty if KVM's counters cannot be read
	undo  func()
}

// debugfs is the mount point of debugfs, with KVM's counters.
const debugfs = "/sys/kernel/debug"

// Open finds KVM's counters. As root it mounts debugfs in dir if needed. Without permission to read
// the counters it returns a Meter without them.
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

// Close unmounts the file system mounted by Open.
func (m Meter) Close() { m.undo() }

// KVM reports whether KVM's counters can be read.
func (m Meter) KVM() bool { return m.stats != "" }

// processes returns the processes of this host.
func (m Meter) processes() (map[int]procfs.ProcStat, error) {
	procs, err := m.proc.AllProcs()
	if err != nil {
		return nil, err
	}
	all := make(map[int]procfs.ProcStat, len(procs))
	for _, p := range procs {
		if st, err := p.Stat(); err == nil { // otherwise the process has ended since
			all[st.PID] = st
		}
	}
	return all, nil
}

// ticksPerSecond is USER_HZ, which is the same on all supported architectures.
const ticksPerSecond = 100

func millis(ticks uint) float64 { return float64(ticks) * 1000 / ticksPerSecond }

// Daemon is the usage of a daemon and its VMs since their start.
type Daemon struct {
	CPUMS      float64 // of the processes, with guests' time
	HostFaults float64 // of the processes
	KVM        bool    // the counters below could be read
	Counters           // of live VMs
}

// Daemon returns the sum over a daemon, the processes started by it or forkd-spawn, and their VMs.
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
		// This includes the daemon's children after their end.
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

// descends reports whether a process is the ancestor, or its child at any depth.
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
