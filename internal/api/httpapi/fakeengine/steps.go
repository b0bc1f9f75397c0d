package fakeengine

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/leaf/steps"
)

// timeline returns steps of the engine, one millisecond each.
func timeline(names ...string) []steps.Step {
	var out []steps.Step
	for i, name := range names {
		s := steps.Step{Name: name, At: time.Duration(i) * time.Millisecond, Took: time.Millisecond}
		switch name {
		case "restore":
			s.Below = reported(s, steps.VMM, "map", "state")
		case "freeze":
			s.Name, s.Below = "capture", reported(s, steps.Guest, "sync", "sync", "freeze")
		case "capture":
			s.Below = reported(s, steps.VMM, "stop", "scan", "state", "copy", "disks", "digest", "group", "resume", "a new one")
		case "identity":
			s.Below = reported(s, steps.Guest, "entropy", "wipe-on-fork", "clock", "hostname", "machine-id", "boot-id",
				"ssh-host-keys", "network", "volumes", "record", "interpreters", "init", "hooks", "\x1b[2J")
		}
		out = append(out, s)
	}
	return out
}

// reported returns steps by their reporter. A guest exaggerates.
func reported(s steps.Step, by steps.Source, names ...string) []steps.Step {
	var all []steps.Reported
	for _, name := range names {
		took := 100 * time.Microsecond
		if by == steps.Guest {
			took = time.Hour
		}
		all = append(all, steps.Reported{Name: name, Took: took})
	}
	return s.Ending(by, all)
}

// childSteps records the steps of a new child.
func childSteps(ctx context.Context, index int) {
	steps.From(ctx).PutChild(index, func() []steps.Step {
		return timeline("turn", "restore", "populate", "start", "agent", "identity", "journal")
	})
}

// recordSteps records the steps of an operation.
func recordSteps(ctx context.Context, names ...string) {
	steps.From(ctx).Put(func() []steps.Step { return timeline(names...) })
}
