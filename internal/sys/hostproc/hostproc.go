// Package hostproc reads from the host's /proc what more than one part needs:
// the memory that is available, the boot's ID, when a process started, and what it costs. It
// owns the reading and keeps nothing. The daemon and the CLI call it; the VMM
// and the guest's agent do not, as they must not carry a library for it. The
// trap: a PID is a name that is given again, so a process is only known by its
// PID, its start time and the boot's ID together.
package hostproc

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// ErrGone means that there is no such process.
var ErrGone = errors.New("no such process")

// StartTime is when a process started, in clock ticks since the host's boot:
// field 22 of proc_pid_stat(5). A zombie has one too.
func StartTime(pid int) (uint64, error) {
	st, err := stat(procfs.DefaultMountPoint, pid)
	return st.Starttime, err
}

// Runs reports whether the process with that start time is there. A zombie does
// not count: it holds no file and no port.
func Runs(pid int, start uint64) bool { return runs(procfs.DefaultMountPoint, pid, start) }

func runs(root string, pid int, start uint64) bool {
	st, err := stat(root, pid)
	return err == nil && st.State != "Z" && st.State != "X" && st.Starttime == start
}

// CPUTime is what a process has used of the CPUs, its threads' user, guest and system time
// together, in steps of a clock tick (10 ms).
func CPUTime(pid int) (time.Duration, error) {
	st, err := stat(procfs.DefaultMountPoint, pid)
	return cpuTime(st), err
}

func cpuTime(st procfs.ProcStat) time.Duration {
	return time.Duration(st.CPUTime() * float64(time.Second))
}

func stat(root string, pid int) (procfs.ProcStat, error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("read state of process %d: %w", pid, err)
	}
	p, err := fs.Proc(pid)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	st, err := p.Stat()
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("process %d: %w: %w", pid, ErrGone, err)
	}
	return st, nil
}

// BootID names the host's current boot; empty if it cannot be read.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// OwnMemory is the host memory, in bytes, that would be free if the process ended: its
// anonymous pages (what it has copied of private mappings, too) and its page tables, as
// the kernel counts them (RssAnon and VmPTE of proc_pid_status(5)); nothing is walked for
// it. What it maps and shares with others is not in it, nor what the kernel keeps for a VM.
func OwnMemory(pid int) (int64, error) { return ownMemory(procfs.DefaultMountPoint, pid) }

func ownMemory(root string, pid int) (int64, error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return 0, err
	}
	p, err := fs.Proc(pid)
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	s, err := p.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	return int64(s.RssAnon + s.VmPTE), nil
}

// MemAvailable is the memory, in bytes, that the kernel estimates could be given
// to new processes without swapping: proc_meminfo(5).
func MemAvailable() (int64, error) {
	m, err := meminfo(procfs.DefaultMountPoint)
	return field("MemAvailable", m.MemAvailableBytes, err)
}

// MemTotal is the host's memory in bytes.
func MemTotal() (int64, error) {
	m, err := meminfo(procfs.DefaultMountPoint)
	return field("MemTotal", m.MemTotalBytes, err)
}

func meminfo(root string) (procfs.Meminfo, error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return procfs.Meminfo{}, err
	}
	return fs.Meminfo()
}

func field(name string, bytes *uint64, err error) (int64, error) {
	switch {
	case err != nil:
		return 0, fmt.Errorf("read %s of /proc/meminfo: %w", name, err)
	case bytes == nil:
		return 0, fmt.Errorf("/proc/meminfo has no %s", name)
	}
	return int64(*bytes), nil
}
