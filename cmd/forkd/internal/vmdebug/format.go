package vmdebug

import (
	"fmt"
	"strings"
	"time"
)

// Format returns the state for people, one fact a line.
func (v VM) Format() string {
	var b strings.Builder
	state := "running"
	switch {
	case !v.Running:
		state = "the process has ended"
	case v.Pausing:
		state = "pausing"
	}
	fmt.Fprintf(&b, "sandbox  %s\nvm       pid %d, %d vCPUs, %d MiB, %s\ndir      %s\n",
		v.Sandbox, v.PID, v.CPUs, v.Memory, state, v.Dir)
	if v.Group != "" {
		fmt.Fprintf(&b, "cgroup   %s\n", v.Group)
	}
	for _, t := range v.Threads {
		cpu := time.Duration(t.Ticks) * 10 * time.Millisecond
		fmt.Fprintf(&b, "thread   %d  %s  %s  %s  %s\n", t.ID, t.Name, t.State, cpu, t.Wait)
	}
	for _, q := range v.Queues {
		fmt.Fprintf(&b, "queue    fd %d: %d notifications not taken\n", q.FD, q.Count)
	}
	for _, c := range v.Exits {
		fmt.Fprintf(&b, "kvm      %s %d\n", c.Name, c.Value)
	}
	if v.Note != "" {
		fmt.Fprintf(&b, "note     %s\n", v.Note)
	}
	if v.Log != "" {
		fmt.Fprintf(&b, "log\n  %s\n", strings.ReplaceAll(v.Log, "\n", "\n  "))
	}
	return b.String()
}
