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

// Memory returns the memory that new processes could get without swapping, and the host's total memory, in bytes.
func Memory() (available, total int64, err error) { return memory(procfs.DefaultMountPoint) }

func memory(root string) (available, total int64, err error) {
	m, err := meminfo(root)
	if available, err = field("MemAvailable", m.MemAvailableBytes, err); err != nil {
		return 0, 0, err
	}
	total, err = field("MemTotal", m.MemTotalBytes, nil)
	return available, total, err
}

// Threads returns the number of threads on the host: the second number of the fourth field of proc_loadavg(5).
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

// MaxThreads returns the host's limit on threads. Each thread has a PID and some kernel memory.
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

// Files returns the number of this process's open descriptors, and its limit.
func Files() (open, limit int64, err error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, 0, err
	}
	open, err = openFiles("/proc/self/fd")
	return open, int64(min(l.Cur, 1<<62)), err
}

// openFiles counts a process's descriptors. Since Linux 6.2 the directory's size is their number; before that it
// is 0, and they have to be listed.
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

// Disk returns the free space for unprivileged users, and the size, of the file system of dir, in bytes.
func Disk(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	const most = 1 << 50 // blocks
	return int64(min(st.Bavail, most)) * st.Frsize, int64(min(st.Blocks, most)) * st.Frsize, nil
}

// Facts are a host's resources and limits at one moment. A limit of 0 is unknown.
type Facts struct {
	MemoryAvailable, MemoryTotal int64 // bytes
	DiskFree, DiskTotal          int64 // bytes, in the store's file system
	Files, MaxFiles              int64 // descriptors of the daemon
	Threads, MaxThreads          int64 // of the host
	// GroupThreads and MaxGroupThreads are for the cgroup around the VMs that is closest to its limit.
	GroupThreads, MaxGroupThreads int64
	Pressure                      Pressure
}
