package usage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Counters holds KVM's counters of a VM since its creation.
type Counters struct {
	Exits       float64 `json:"vm_exits"`     // from guest to host
	GuestFaults float64 `json:"guest_faults"` // page faults that exited the guest
}

func (c *Counters) add(more Counters) {
	c.Exits += more.Exits
	c.GuestFaults += more.GuestFaults
}

// counters returns the counters of all VMs, by process. KVM has a directory for each VM, named
// after the thread that made it.
func (m Meter) counters() (map[int]Counters, error) {
	if m.stats == "" {
		return nil, nil
	}
	dirs, err := os.ReadDir(m.stats)
	if err != nil {
		return nil, err
	}
	all := make(map[int]Counters, len(dirs))
	for _, d := range dirs {
		thread, _, ok := strings.Cut(d.Name(), "-")
		if !ok || !d.IsDir() {
			continue
		}
		c, err := readVM(filepath.Join(m.stats, d.Name()))
		if err != nil {
			return nil, err
		}
		if pid := processOf(thread); pid != 0 {
			sum := all[pid]
			sum.add(c)
			all[pid] = sum
		}
	}
	return all, nil
}

// readVM reads the counters of one VM. A missing counter is 0: the VM has ended, or the
// architecture lacks the counter.
func readVM(dir string) (c Counters, err error) {
	for name, into := range map[string]*float64{"exits": &c.Exits, "pf_taken": &c.GuestFaults} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			*into, err = strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// processOf returns the process of a thread, or 0 if the thread has ended.
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
