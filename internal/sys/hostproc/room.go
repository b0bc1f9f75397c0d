package hostproc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Memory is what the host has, in bytes, and what of it could be given to new processes
// without swapping.
func Memory() (available, total int64, err error) { return memory(procfs.DefaultMountPoint) }

func memory(root string) (available, total int64, err error) {
	m, err := meminfo(root)
	if available, err = field("MemAvailable", m.MemAvailableBytes, err); err != nil {
		return 0, 0, err
	}
	total, err = field("MemTotal", m.MemTotalBytes, nil)
	return available, total, err
}

// Threads are how many the host runs: the second number of the fourth field of proc_loadavg(5).
func Threads() (int64, error) { return threads(procfs.DefaultMountPoint) }

func threads(root string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(root, "loadavg"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	if len(fields) < 4 {
		return 0, fmt.Errorf("/proc/loadavg has %d fields, want 5", len(fields))
	}
	_, all, _ := strings.Cut(fields[3], "/")
	return count("/proc/loadavg", all)
}

// MaxThreads is how many the host could run: each has a PID, and some memory of the kernel's.
func MaxThreads() (int64, error) { return maxThreads(procfs.DefaultMountPoint) }

func maxThreads(root string) (int64, error) {
	least := int64(0)
	for _, name := range []string{"pid_max", "threads-max"} {
		b, err := os.ReadFile(filepath.Join(root, "sys", "kernel", name))
		if err != nil {
			return 0, err
		}
		n, err := count("/proc/sys/kernel/"+name, strings.TrimSpace(string(b)))
		if err != nil {
			return 0, err
		}
		if least == 0 || n < least {
			least = n
		}
	}
	return least, nil
}

func count(file, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s has %.40q, want a number", file, text)
	}
	return n, nil
}

// Files are this process's open descriptors, and how many it may have.
func Files() (open, limit int64, err error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, 0, err
	}
	open, err = openFiles("/proc/self/fd")
	return open, int64(min(l.Cur, 1<<62)), err
}

// openFiles counts a process's descriptors. Since Linux 6.2 the directory's size is their number;
// before that it is 0, and they have to be listed.
func openFiles(dir string) (int64, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	if st.Size() > 0 {
		return st.Size(), nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	return int64(len(names)), err
}

// Disk is how large a file system is, and what it has free for others than root, in bytes. dir is
// on it.
func Disk(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	const most = 1 << 50 // blocks
	return int64(min(st.Bavail, most)) * st.Frsize, int64(min(st.Blocks, most)) * st.Frsize, nil
}

// Facts are what a host has at one moment, and how much of it. A limit of 0 is not known.
type Facts struct {
	MemoryAvailable, MemoryTotal int64 // bytes
	DiskFree, DiskTotal          int64 // bytes of the store's file system
	Files, MaxFiles              int64 // descriptors of the daemon
	Threads, MaxThreads          int64 // of the host
	// GroupThreads are those of the tightest cgroup around the VMs.
	GroupThreads, MaxGroupThreads int64
	Pressure                      Pressure
}
