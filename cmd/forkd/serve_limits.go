//go:build linux

package main

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/confine/cgroup"
)

// Values of --cgroup.
const (
	cgroupAuto = "auto"
	cgroupOff  = "off"
)

// groups returns the daemon's part of the host's cgroups. If it is nil, sandboxes cannot be
// limited. Each run directory has its own part, where a later daemon finds it.
func (o serveOptions) groups(log *slog.Logger) (*cgroup.Root, error) {
	switch o.cgroup {
	case cgroupOff:
		return nil, nil
	case cgroupAuto:
	default:
		return o.delegated(log)
	}
	sum := sha256.Sum256([]byte(o.run))
	groups, err := cgroup.Open(fmt.Sprintf("forkd-%x", sum[:4]))
	if err != nil {
		log.Info("sandboxes cannot be limited", "reason", err)
		return nil, nil
	}
	log.Info("sandboxes have cgroups", "path", groups.Dir(), "controllers", groups.Controllers())
	return groups, nil
}

// delegated opens the group named by --cgroup. An operator who names one wants its limits, so a
// failure is an error.
func (o serveOptions) delegated(log *slog.Logger) (*cgroup.Root, error) {
	if !filepath.IsAbs(o.cgroup) {
		return nil, badCgroup(o.cgroup)
	}
	groups, err := cgroup.OpenAt(o.cgroup)
	if err != nil {
		return nil, exit.UsageError{Err: fmt.Errorf("--cgroup %s: %w", o.cgroup, err)}
	}
	log.Info("sandboxes have cgroups", "path", groups.Dir(), "controllers", groups.Controllers())
	return groups, nil
}

func badCgroup(mode string) error {
	return exit.UsageError{Err: fmt.Errorf("--cgroup %q: want %s, %s or a path below /sys/fs/cgroup", mode, cgroupAuto,
		cgroupOff)}
}
