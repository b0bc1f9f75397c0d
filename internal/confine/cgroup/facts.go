package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Facts describes the limits that this process could set.
type Facts struct {
	Dir     string // directory for the groups
	Err     error  // why groups are not possible; nil if they are
	Missing []Controller
}

// Probe finds out what Open would get. It undoes its own changes.
func Probe() Facts {
	p, err := findPlace()
	f := Facts{Dir: p.dir, Err: err}
	if err != nil {
		return f
	}
	trial := filepath.Join(p.dir, fmt.Sprintf("forkd-probe-%d", os.Getpid()))
	if err := os.Mkdir(trial, 0o755); err != nil {
		f.Err = fmt.Errorf("%w: %w", ErrUnsupported, err)
		return f
	}
	f.Err = os.Remove(trial)
	if !p.root {
		if _, err := p.processes(); err != nil {
			f.Err = err
		}
	}
	has, err := listed(p.dir, "cgroup.controllers")
	if err != nil {
		f.Err = err
	}
	for _, c := range controllers {
		if !slices.Contains(has, c) {
			f.Missing = append(f.Missing, c)
		}
	}
	return f
}
