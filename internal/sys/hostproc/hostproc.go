// Package hostproc reads facts from the host's /proc that several packages need: available memory, the boot's ID,
// and a process's start time and costs. It stores no state. The daemon and the CLI use it; the VMM and the
// guest's agent do not, to avoid linking its library. Beware: PIDs are reused, so only the PID, the start time
// and the boot's ID together identify a process.
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

// StartTime returns the start time of a process, in clock ticks since the host's boot: field 22 of
// proc_pid_stat(5). A zombie has one, too.
func StartTime(pid int) (uint64, error) {
	st, err := stat(procfs.DefaultMountPoint, pid)
	return st.Starttime, err
}

// Runs reports whether the process with this start time exists. A zombie does not count, because it holds no
// files or ports.
func Runs(pid int, start uint64) bool { return runs(procfs.DefaultMountPoint, pid, start) }

func runs(root string, pid int, start uint64) bool {
	st, err := stat(root, pid)
	return err == nil && st.State != "Z" && st.State != "X" && st.Starttime == start
}

// CPUTime returns the CPU time of a process: user, guest and system time of all its threads, in steps of a clock
// tick (10 ms).
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

// BootID returns the ID of the host's current boot. It is empty if it cannot be read.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// OwnMemory returns the host memory, in bytes, that would become free if the process ended: its anonymous pages
// (including copied pages of private mappings) and its page tables, as counted by the kernel (RssAnon and VmPTE
// of proc_pid_status(5)). It does not walk page tables. Shared mappings, and the kernel's memory for a VM, are
// not included.
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

// MemAvailable returns the kernel's estimate of the memory, in bytes, that new processes could get without
// swapping: proc_meminfo(5).
func MemAvailable() (int64, error) {
	m, err := meminfo(procfs.DefaultMountPoint)
	return field("MemAvailable", m.MemAvailableBytes, err)
}

// MemTotal returns the host's memory in bytes.
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
