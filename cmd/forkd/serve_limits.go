//go:build linux

package main

import (
	"crypto/sha256"
	"fmt"
	"log/slog"

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
		return nil, exit.UsageError{Err: fmt.Errorf("--cgroup %q: want %s or %s", o.cgroup, cgroupAuto, cgroupOff)}
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
