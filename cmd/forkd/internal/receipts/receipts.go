// Package receipts describes a receipt for people, for `forkd inspect`. It only chooses the order
// and the words: it calls no daemon and does not print. The trap: parts of a receipt come from
// guests, so the caller must clean the text before it prints it.
package receipts

import (
	"fmt"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// facts collects pairs of name and value.
type facts []string

func (f *facts) add(name, format string, args ...any) {
	*f = append(*f, name, fmt.Sprintf(format, args...))
}

// Facts returns names and values, one after the other. The caller leaves out empty values.
func Facts(r api.Receipt) []string {
	var f facts
	f.add("receipt", "%s", r.ID)
	f.add("of", "%s", subject(r))
	f.add("at", "%s", time.UnixMilli(r.AtUnixMS).UTC().Format("2006-01-02T15:04:05.000Z"))
	f.add("took", "%s", ui.Millis(r.TookMS))
	f.add("failed", "%s", r.Error)
	if r.Recovered {
		f.add("note", "made from the journal: the daemon ended before it wrote the receipt")
	}
	if r.Cold && r.Op == api.ReceiptPause {
		f.add("note", "its memory was not kept")
	} else if r.Cold {
		f.add("note", "its guest booted")
	}
	f.source("from", r.Parent)
	f.add("before", "%s", r.Before)
	if i := r.Image; i != nil {
		f.add("image", "%s %s", i.Name, i.Digest)
	}
	f.source("made", r.Made)
	f.capture(r.Capture)
	if v := r.VM; v != nil {
		f.add("vm", "%s; memory mapped in %s, state loaded in %s", shell(v), ui.Millis(v.MapMS), ui.Millis(v.StateMS))
		if v.PopulatedPages > 0 {
			f.add("working set", "%d pages mapped before it began", v.PopulatedPages)
		}
	}
	f.identity(r.Identity)
	f.guest(r.Guest)
	f.add("steps", "%s", steps(r.Steps))
	return f
}

func shell(v *api.ReceiptVM) string {
	switch {
	case v.Prepared:
		return "prepared shell from the pool"
	case v.Pooled:
		return "shell from the pool"
	}
	return "shell started for it"
}

func subject(r api.Receipt) string {
	switch r.Op {
	case api.ReceiptBranch:
		return fmt.Sprintf("branch of sandbox %s: snapshot %s", r.Sandbox, r.Snapshot)
	case api.ReceiptSnapshot:
		return "making of snapshot " + r.Snapshot
	}
	return fmt.Sprintf("%s of sandbox %s", r.Op, r.Sandbox)
}

func (f *facts) source(name string, s *api.ReceiptSource) {
	if s == nil {
		return
	}
	f.add(name, "%s", strings.TrimSpace("snapshot "+s.Tag+" "+s.ContentHash))
	for _, l := range s.Layers {
		f.add("  "+l.Kind, "%s, %s", strings.TrimSpace(l.ID+" "+l.Digest), ui.Bytes(l.Bytes))
	}
}

func (f *facts) capture(c *api.ReceiptCapture) {
	if c == nil {
		return
	}
	f.add("pause", "%s", ui.Millis(c.PauseMS))
	if len(c.PauseSteps) > 0 {
		f.add("pause's steps", "%s", steps(c.PauseSteps))
	}
	f.add("capture", "%s, writes found by %s; %d rounds, %s, %s of them in the pause",
		c.Mode, c.Mechanism, c.Rounds, ui.Bytes(c.Bytes), ui.Bytes(c.PausedBytes))
}

func (f *facts) identity(i *api.ReceiptIdentity) {
	if i == nil {
		return
	}
	f.add("index", "%d", i.Index)
	f.add("parent", "%s", i.Parent)
	f.add("hostname", "%s", i.Hostname)
	f.add("machine-id", "%s", i.MachineID)
	f.add("generation id", "%s", i.GenerationID)
	if i.EntropyBytes > 0 {
		f.add("entropy sent", "%d bytes", i.EntropyBytes)
	}
	switch i.Way {
	case "port":
		f.add("told", "on the identity's own port")
	case "http":
		f.add("told", "over HTTP: the snapshot's agent has no port for it")
	}
}

func (f *facts) guest(g *api.ReceiptGuest) {
	if g == nil {
		return
	}
	f.add("boot-id", "%s", g.BootID)
	f.add("kernel", "%s", choose(g.KernelReseeded, "reseeded", "NOT reseeded"))
	f.add("random digest", "%s", g.RandomDigest)
	f.add("clock moved", "%s", clock(g.ClockStepMS))
	for _, i := range g.Interpreters {
		if i.Later {
			f.add(i.Language, "reseeded before its next request%s", because(i.Error))
			continue
		}
		f.add(i.Language, "reseeded %s%s", strings.Join(i.Reseeded, ", "), because(i.Error))
	}
	for _, h := range g.Hooks {
		f.add("hook "+h.Name, "exit code %d in %s%s", h.ExitCode, ui.Millis(h.TookMS), because(h.Error))
	}
	var parts []string
	for _, s := range g.Steps {
		if s.Done || s.Error != "" {
			parts = append(parts, s.Name+" "+ui.Millis(s.TookMS)+because(s.Error))
		}
	}
	f.add("guest's steps", "%s", strings.Join(parts, ", "))
}

func steps(all []api.ReceiptStep) string {
	parts := make([]string, 0, len(all))
	for _, s := range all {
		parts = append(parts, s.Name+" "+ui.Millis(s.TookMS))
	}
	return strings.Join(parts, ", ")
}

// clock describes the adjustment of a wall clock.
func clock(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond)).Round(time.Millisecond)
	switch {
	case d > 0:
		return "on by " + d.String()
	case d < 0:
		return "back by " + (-d).String()
	}
	return "by less than 1 ms"
}

func because(err string) string {
	if err == "" {
		return ""
	}
	return " (failed: " + err + ")"
}

func choose(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}
