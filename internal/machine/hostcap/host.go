package hostcap

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/images/debtool"
	"github.com/forkd/forkd/internal/sys/fsverity"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// HostFacts holds the results of probing the host, except for KVM.
type HostFacts struct {
	Kernel       string // release
	PagemapScan  bool
	Userfaultfd  bool
	AvailableMiB int64 // memory
	FreeMiB      int64 // free disk space for forkd's data
	DataDir      string
	InMemory     bool // DataDir is on a tmpfs
	KSM          bool
	// Verity is why the file system of DataDir has no fs-verity; nil if it has.
	Verity  error
	Missing []Tool
	Limits  cgroup.Facts // for a daemon started from here
}

// Tool is a program needed to build images, and its Debian package.
type Tool struct{ Program, Package string }

// imageTools are searched in the PATH and in the system's directories.
var imageTools = []Tool{
	{"mmdebstrap", "mmdebstrap"},
	{"mkfs.erofs", "erofs-utils"},
	{"apt-get", "apt"},
}

// ProbeHost probes kernel, memory, disk and tools. dataDir need not exist yet.
func ProbeHost(dataDir string) HostFacts {
	f := HostFacts{
		PagemapScan: hasPagemapScan(), Userfaultfd: hasUserfaultfd(),
		AvailableMiB: availableMiB(), DataDir: dataDir, FreeMiB: freeMiB(dataDir),
		InMemory: InMemory(dataDir), KSM: ksmRuns(),
		Verity: fsverity.Probe(parent(dataDir)), Limits: cgroup.Probe(),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	for _, t := range imageTools {
		if !HasProgram(t.Program) {
			f.Missing = append(f.Missing, t)
		}
	}
	return f
}

// Amounts for comfortable use.
const (
	comfortableMemoryMiB = 4 << 10
	comfortableDiskMiB   = 10 << 10
)

// Checks returns doctor's lines about the host.
func (f HostFacts) Checks() []Check {
	return []Check{
		f.kernelCheck(),
		amountCheck("memory", f.AvailableMiB, comfortableMemoryMiB, "available",
			"close programs, or start a smaller machine (--memory)"),
		f.diskCheck(),
		f.ksmCheck(), f.verityCheck(), f.limitsCheck(),
		f.toolsCheck(),
	}
}

func (f HostFacts) diskCheck() Check {
	c := amountCheck("disk", f.FreeMiB, comfortableDiskMiB, "free for "+f.DataDir,
		"make room, or set XDG_DATA_HOME to another disk")
	if f.InMemory {
		c.Level, c.Detail = Note, c.Detail+", which is in memory (tmpfs)"
		c.Do = "set XDG_DATA_HOME to a disk: " + InMemoryWarning
	}
	return c
}

func (f HostFacts) kernelCheck() Check {
	c := Check{Name: "kernel", Level: OK, Detail: f.Kernel + ", with PAGEMAP_SCAN and userfaultfd"}
	var missing []string
	if !f.PagemapScan {
		missing = append(missing, "PAGEMAP_SCAN (Linux 6.7)")
	}
	if !f.Userfaultfd {
		missing = append(missing, "userfaultfd (or the right to use it)")
	}
	if len(missing) > 0 {
		c.Level, c.Detail = Note, f.Kernel+", without "+strings.Join(missing, " and ")
		c.Do = "branching running sandboxes on this host takes slower ways; a 6.7 kernel or newer has both"
	}
	return c
}

func (f HostFacts) ksmCheck() Check {
	if f.KSM {
		return Check{"page merging", Note, "KSM is on",
			"switch it off (echo 2 > /sys/kernel/mm/ksm/run): it lets guests detect each other's memory content"}
	}
	return Check{Name: "page merging", Level: OK, Detail: "KSM is off"}
}

func (f HostFacts) verityCheck() Check {
	const name = "damage on disk"
	switch {
	case f.Verity == nil:
		return Check{Name: name, Level: OK, Detail: "the file system has fs-verity: the kernel checks layers at each read"}
	case errors.Is(f.Verity, fsverity.ErrUnsupported):
		return Check{name, Note, "the file system has no fs-verity: a flipped bit is found by the daily scrub, not at once",
			"on ext4 `tune2fs -O verity DEVICE` adds it; Btrfs has it"}
	}
	return Check{Name: name, Level: OK,
		Detail: fmt.Sprintf("found by the daily scrub; fs-verity could not be tried (%v)", f.Verity)}
}

func (f HostFacts) limitsCheck() Check {
	const name = "limits"
	const advice = "start the daemon as a service with Delegate=yes on a host with cgroup v2 (docs/operate/limits.md); " +
		"sandboxes in the machine can be limited in any case"
	switch l := f.Limits; {
	case l.Err != nil:
		return Check{name, Note, fmt.Sprintf("a daemon started here can limit no sandbox: %v", l.Err), advice}
	case len(l.Missing) > 0:
		return Check{name, Note, "a daemon started here has no cgroup v2 controller for: " + joined(l.Missing), advice}
	}
	return Check{Name: name, Level: OK, Detail: "cgroup v2 with memory, cpu, pids and io"}
}

func joined(names []cgroup.Controller) string {
	var all []string
	for _, n := range names {
		all = append(all, string(n))
	}
	return strings.Join(all, ", ")
}

func (f HostFacts) toolsCheck() Check {
	if len(f.Missing) == 0 {
		return Check{Name: "image tools", Level: OK, Detail: "mmdebstrap, erofs-utils and apt are there"}
	}
	var programs, packages []string
	for _, t := range f.Missing {
		programs, packages = append(programs, t.Program), append(packages, t.Package)
	}
	return Check{"image tools", Fail, "missing: " + strings.Join(programs, ", "),
		"images cannot be built: " + debtool.Installer() + ", or apt-get install " + strings.Join(packages, " ")}
}

func amountCheck(name string, have, want int64, what, advice string) Check {
	c := Check{Name: name, Level: OK, Detail: fmt.Sprintf("%.1f GiB %s", float64(have)/1024, what)}
	if have < want {
		c.Level, c.Do = Note, advice
	}
	return c
}

// HasProgram searches the PATH and Debian's directories for administrators' programs.
func HasProgram(name string) bool {
	if _, err := exec.LookPath(name); err == nil {
		return true
	}
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if _, err := os.Stat(dir + name); err == nil {
			return true
		}
	}
	return false
}

func availableMiB() int64 {
	free, _ := hostproc.MemAvailable()
	return free >> 20
}

// InMemoryWarning is the warning for users whose data directory is InMemory. A tmpfs allocates a page for a hole
// of a file when a mapping reads it (shmem_get_folio), and KVM retries a fault if that fails.
const InMemoryWarning = "snapshots take memory there and are gone after a restart, and once it is full a guest that " +
	"reads memory which its snapshot never wrote stands still until there is room"

// InMemory reports whether dir is, or will be, on a tmpfs.
func InMemory(dir string) bool { return fileSystem(dir).Type == unix.TMPFS_MAGIC }

func freeMiB(dir string) int64 {
	st := fileSystem(dir)
	return int64(st.Bavail) * st.Bsize >> 20
}

// fileSystem returns the file system that dir is, or will be, on. It returns a zero value if unknown.
func fileSystem(dir string) (st unix.Statfs_t) {
	for ; dir != ""; dir = parent(dir) {
		if unix.Statfs(dir, &st) == nil {
			break
		}
	}
	return st
}

// parent returns "" for the root, so that loops end.
func parent(dir string) string {
	up := filepath.Dir(dir)
	if up == dir {
		return ""
	}
	return up
}

func ksmRuns() bool {
	b, err := os.ReadFile("/sys/kernel/mm/ksm/run")
	return err == nil && strings.TrimSpace(string(b)) == "1"
}
