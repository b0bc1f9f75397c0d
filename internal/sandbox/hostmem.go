package sandbox

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// admission decides whether the host has memory for another VM. What it let in
// and has not yet shown in the host's figures is counted as pending.
type admission struct {
	engine *Engine

	mu        sync.Mutex
	pending   int64
	available int64
	read      time.Time
}

// figuresAge is how old the host's figures may be: reading them for each of a
// thousand children would cost more than it tells (half a millisecond under
// emulation, where a child comes every ten).
const figuresAge = 100 * time.Millisecond

// admit reserves need bytes until release is called, which is when the VM has
// touched the memory it starts with.
func (a *admission) admit(need int64) (release func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.engine.cfg.Now(); a.read.IsZero() || now.Sub(a.read) > figuresAge {
		if a.available, err = a.engine.cfg.MemAvailable(); err != nil {
			return nil, err
		}
		a.read = now
	}
	left := a.available - a.pending - a.engine.cfg.HostReserve
	if left < need {
		return nil, problem(ErrNoMemory, "kill sandboxes, ask for fewer, or give the host (or the machine) more memory",
			"not enough memory: %d MiB are needed, %d MiB are left beside a reserve of %d MiB", need>>20, max(0, left)>>20, a.engine.cfg.HostReserve>>20)
	}
	a.pending += need
	return sync.OnceFunc(func() {
		a.mu.Lock()
		a.pending -= need
		a.mu.Unlock()
	}), nil
}

// HostMemAvailable is the memory, in bytes, that the kernel reckons could be given to new processes (proc_meminfo(5)).
func HostMemAvailable() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if rest, ok := strings.CutPrefix(sc.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.Join(errors.New("/proc/meminfo has no MemAvailable"), sc.Err())
}
