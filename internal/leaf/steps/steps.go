// Package steps collects the steps of an operation for a trace. A caller that wants them puts a Recorder
// into the context, and the operation fills it. Without a Recorder the operation does no work for it.
//
// The trap: VMMs and guests report their own steps. A guest is hostile, so its names are of a fixed list, and
// its times are cut to the time that the daemon measured for the whole exchange.
package steps

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Source is the program that measured a step. It is empty for the daemon.
type Source string

// Sources besides the daemon.
const (
	VMM   Source = "vmm"
	Guest Source = "guest"
)

// Other is the name of a step whose reported name is not known.
const Other = "other"

// names are the steps that a VMM and a guest may report. Other names become Other.
var names = map[Source][]string{
	VMM: {"map", "state", "stop", "scan", "copy", "disks", "digest", "group", "resume"},
	Guest: {"entropy", "wipe-on-fork", "clock", "hostname", "machine-id", "boot-id", "ssh-host-keys", "network", "volumes",
		"record", "interpreters", "init", "hooks", "sync", "freeze", "identity-files", "disks", "free-page-reports",
		"agent-memory"},
}

// Names returns the known names of a source's steps.
func Names(by Source) []string { return append(slices.Clone(names[by]), Other) }

// MaxReported limits the steps of one report.
const MaxReported = 32

// Step is a step of an operation.
type Step struct {
	Name string
	By   Source
	// At is the step's begin, from the begin of the operation. Took is its duration.
	At, Took time.Duration
	// Below are the step's own steps.
	Below []Step
}

// Reported is a step as a VMM or a guest reports it.
type Reported struct {
	Name string
	Took time.Duration
}

// Ending returns reported steps within the step during which they ran, one after the other. The last one ends
// with it, because the report is the end of the exchange. Time beyond the step is cut off at its begin.
func (s Step) Ending(by Source, reported []Reported) []Step {
	reported = reported[:min(len(reported), MaxReported)]
	out := make([]Step, len(reported))
	left := max(s.Took, 0)
	for i, r := range slices.Backward(reported) {
		took := min(max(r.Took, 0), left)
		left -= took
		name := strings.ReplaceAll(r.Name, " ", "-")
		if !slices.Contains(names[by], name) {
			name = Other
		}
		out[i] = Step{Name: name, By: by, At: s.At + left, Took: took}
	}
	return out
}

// Recorder holds the steps of one operation. A nil Recorder records nothing.
type Recorder struct {
	most int

	mu       sync.Mutex // guards the fields below
	all      []Step
	children map[int][]Step
}

// With returns a context with a Recorder for the operation itself, and for at most children of its children.
func With(ctx context.Context, children int) (context.Context, *Recorder) {
	r := &Recorder{most: children, children: map[int][]Step{}}
	return context.WithValue(ctx, key{}, r), r
}

type key struct{}

// From returns the context's Recorder, or nil.
func From(ctx context.Context) *Recorder {
	r, _ := ctx.Value(key{}).(*Recorder)
	return r
}

// Put records the operation's steps. It calls list only if there is a Recorder.
func (r *Recorder) Put(list func() []Step) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = list()
}

// PutChild records the steps of the child with an index. It ignores children beyond the limit.
func (r *Recorder) PutChild(index int, list func() []Step) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.children) < r.most {
		r.children[index] = list()
	}
}

// Steps returns the operation's steps.
func (r *Recorder) Steps() []Step {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// Child returns the steps of the child with an index.
func (r *Recorder) Child(index int) []Step {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.children[index]
}
