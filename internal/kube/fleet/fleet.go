package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// Fleet remembers the sandboxes of objects. Its methods are safe for concurrent use.
type Fleet struct {
	client *client.Client

	mu     sync.Mutex // guards the fields below
	byID   map[string]api.SandboxInfo
	unsure map[string]bool // UIDs of owners with a request of unknown result
	tries  map[string]int  // by UID: keys used up by requests with ended sandboxes
	fresh  time.Time       // of the last list
	since  time.Time       // of the first list
	ended  map[string]bool // ids that ended while a list was read
	moved  map[string]bool // ids whose state changed since the last list, as an answer about one sandbox said
}

// New returns a fleet behind a gateway, or on one node. It knows no sandbox before Refresh.
func New(c *client.Client) *Fleet {
	return &Fleet{client: c, byID: map[string]api.SandboxInfo{}, unsure: map[string]bool{},
		tries: map[string]int{}, ended: map[string]bool{}, moved: map[string]bool{}}
}

// Client returns the client.
func (f *Fleet) Client() *client.Client { return f.client }

// Change is a sandbox that is new, gone, or in another state.
type Change struct {
	// Owner is the sandbox's owner.
	Owner Owner
	// ID is the sandbox's id.
	ID string
}

// Refresh reads the list of all sandboxes of objects, and returns the changed ones. A known sandbox that is not in the
// list is asked for, because a node may be missing in the list.
func (f *Fleet) Refresh(ctx context.Context) (changed []Change, err error) {
	f.mu.Lock()
	f.ended = map[string]bool{}
	before := make(map[string]bool, len(f.byID)) // sandboxes made during the list may be missing in it
	for id := range f.byID {
		before[id] = true
	}
	f.mu.Unlock()
	list, err := f.client.ListSandboxes(ctx, "label="+LabelUID)
	if err != nil {
		return nil, err
	}
	listed := map[string]bool{}
	f.mu.Lock()
	for _, sb := range list {
		listed[sb.ID] = true
		old, known := f.byID[sb.ID]
		if f.ended[sb.ID] {
			continue
		}
		f.byID[sb.ID] = sb
		if owner, ok := OwnerOf(sb.Labels); ok && (!known || old.Status != sb.Status || f.moved[sb.ID]) {
			changed = append(changed, Change{owner, sb.ID})
		}
		delete(f.moved, sb.ID)
	}
	var lost []api.SandboxInfo
	for id, sb := range f.byID {
		if before[id] && !listed[id] {
			lost = append(lost, sb)
		}
	}
	f.mu.Unlock()
	for _, sb := range lost {
		if gone, err := f.Gone(ctx, sb.ID); err == nil && gone {
			owner, _ := OwnerOf(sb.Labels)
			changed = append(changed, Change{owner, sb.ID})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.moved {
		if owner, ok := OwnerOf(f.byID[id].Labels); ok {
			changed = append(changed, Change{owner, id})
		}
	}
	clear(f.moved)
	f.fresh = time.Now()
	if f.since.IsZero() {
		f.since = f.fresh
	}
	return changed, nil
}

// Known reports whether the fleet has read a list.
func (f *Fleet) Known() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.since.IsZero()
}

// All returns the known sandboxes.
func (f *Fleet) All() []api.SandboxInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]api.SandboxInfo, 0, len(f.byID))
	for _, sb := range f.byID {
		all = append(all, sb)
	}
	return all
}

// Of returns the known sandboxes of an owner, by creation.
func (f *Fleet) Of(o Owner) []api.SandboxInfo {
	var out []api.SandboxInfo
	for _, sb := range f.All() {
		if o.Of(sb) {
			out = append(out, sb)
		}
	}
	slices.SortFunc(out, func(a, b api.SandboxInfo) int {
		return cmp.Or(cmp.Compare(a.CreatedAtUnix, b.CreatedAtUnix), cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Gone reports whether a sandbox does not exist. An error means that its node did not say so.
func (f *Fleet) Gone(ctx context.Context, id string) (bool, error) {
	sb, err := f.client.Sandbox(ctx, id)
	if client.IsNotFound(err) || client.ReasonOf(err) == api.ReasonSandboxEnded {
		f.forget(id)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if _, ok := OwnerOf(sb.Labels); ok {
		f.note(sb)
	}
	return false, nil
}

func (f *Fleet) note(list ...api.SandboxInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, sb := range list {
		if sb.ID == "" || f.ended[sb.ID] {
			continue
		}
		if old, known := f.byID[sb.ID]; known && old.Status != sb.Status {
			f.moved[sb.ID] = true // whoever asked may not be its only owner
		}
		f.byID[sb.ID] = sb
	}
}

func (f *Fleet) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byID, id)
	delete(f.moved, id)
	f.ended[id] = true
}

// handover is the time after a start in which a request of an earlier operator may still make sandboxes.
const handover = time.Minute

// Find returns the sandboxes of an owner. It asks the nodes if an earlier request may have made some: after a lost
// answer, and soon after the operator's start.
func (f *Fleet) Find(ctx context.Context, o Owner) ([]api.SandboxInfo, error) {
	f.mu.Lock()
	ask := f.unsure[o.UID] || time.Since(f.since) < handover
	f.mu.Unlock()
	if known := f.Of(o); len(known) > 0 || !ask {
		return known, nil
	}
	return f.Ask(ctx, o)
}

// Ask returns the sandboxes of an owner, as the nodes list them.
func (f *Fleet) Ask(ctx context.Context, o Owner) ([]api.SandboxInfo, error) {
	list, err := f.client.ListSandboxes(ctx, "label="+LabelUID+"="+o.UID)
	if err != nil {
		return nil, err
	}
	f.note(slices.DeleteFunc(list, func(sb api.SandboxInfo) bool { return !o.Of(sb) })...)
	return f.Of(o), nil
}

// Fork makes sandboxes of an owner. The owner's UID is the key of the request, so a repetition makes no second ones.
func (f *Fleet) Fork(ctx context.Context, o Owner, req api.CreateSandboxesRequest) (client.ForkResult, error) {
	req.Labels = o.Labels(req.Labels)
	n := 1
	if req.N != nil {
		n = *req.N
	}
	f.mu.Lock()
	key := fmt.Sprintf("kube-%s-%d-%d", o.UID, n, f.tries[o.UID])
	f.mu.Unlock()
	res, err := client.ForkOnce(ctx, f.client, key, req)
	if err == nil && slices.ContainsFunc(res.Failed(), func(sb api.SandboxInfo) bool { return endedBefore(sb.Error) }) {
		err = errEnded
	}
	if err != nil && (errors.Is(err, errEnded) || endedBefore(err.Error())) {
		// The gateway ends the children of a fork that an operator's end breaks off. The next attempt needs another key.
		f.mu.Lock()
		f.tries[o.UID]++
		f.unsure[o.UID] = true
		f.mu.Unlock()
		f.note(res.OK()...)
		return client.ForkResult{}, fmt.Errorf("fork again: %w", err)
	}
	if err == nil && f.again(o, res) {
		f.note(res.OK()...)
		return client.ForkResult{}, fmt.Errorf("fork again: %w", errUnanswered)
	}
	if client.CodeOf(err) == api.CodeInvalid && strings.HasPrefix(err.Error(), "Idempotency-Key") {
		// An earlier operator's request differs in the time until the sandbox's end. It made the sandboxes, or still does.
		err = fmt.Errorf("an earlier request is in progress: %s", err)
	}
	f.mu.Lock()
	if err != nil && uncertain(err) {
		f.unsure[o.UID] = true
	} else {
		delete(f.unsure, o.UID)
	}
	f.mu.Unlock()
	f.note(res.OK()...)
	return res, err
}

// maxAgain limits the attempts of a fork whose nodes do not answer.
const maxAgain = 5

// again reports whether a node left children of a fork without an answer, and the fork should be tried again. Children
// that it made in spite of that are listed, or surplus, and end later.
func (f *Fleet) again(o Owner, res client.ForkResult) bool {
	silent := func(sb api.SandboxInfo) bool { return sb.Code == api.CodeTimeout }
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tries[o.UID] >= maxAgain || !slices.ContainsFunc(res.Failed(), silent) {
		return false
	}
	f.tries[o.UID]++
	f.unsure[o.UID] = true
	return true
}

// errUnanswered reports children of which a node sent no answer.
var errUnanswered = errors.New("a node sent no answer about its children")

// errEnded reports children of an earlier request that have ended.
var errEnded = errors.New("sandboxes of an earlier request have ended")

// endedBefore recognizes the daemon's answer to a repetition of a request with ended sandboxes.
func endedBefore(text string) bool { return strings.Contains(text, "of the first request has ended") }

// uncertain reports whether a failed request may have made sandboxes.
func uncertain(err error) bool {
	switch client.CodeOf(err) {
	case api.CodeInternal, api.CodeBroken, api.CodeTimeout, api.CodeRequestTimeout, api.CodeUnreachable:
		return true
	}
	return false
}

// End ends a sandbox. A sandbox that has ended is no error.
func (f *Fleet) End(ctx context.Context, id string) error {
	err := f.client.Kill(ctx, id)
	if err == nil || client.IsNotFound(err) || client.ReasonOf(err) == api.ReasonSandboxEnded {
		f.forget(id)
		return nil
	}
	return err
}

// EndAll ends all sandboxes of an owner. It asks the nodes, so that it ends unknown ones, too.
func (f *Fleet) EndAll(ctx context.Context, o Owner) error {
	all, err := f.Ask(ctx, o)
	if err != nil {
		return err
	}
	for _, sb := range all {
		if err := f.End(ctx, sb.ID); err != nil {
			return err
		}
	}
	return nil
}

// Pause pauses a sandbox. Its memory and processes are kept.
func (f *Fleet) Pause(ctx context.Context, id string) (api.SandboxInfo, error) {
	sb, err := client.Life{Client: f.client}.Pause(ctx, id, api.PauseRequest{})
	if err == nil {
		f.note(sb)
	}
	return sb, err
}

// Resume resumes a sandbox.
func (f *Fleet) Resume(ctx context.Context, id string) (api.SandboxInfo, error) {
	sb, err := client.Life{Client: f.client}.Resume(ctx, id)
	if err == nil {
		f.note(sb)
	}
	return sb, err
}

// Name tells the router the UID of a sandbox's Sandbox.
func (f *Fleet) Name(ctx context.Context, id, uid string) error {
	_, err := client.LabelSandbox(ctx, f.client, id, api.LabelsRequest{Set: map[string]string{LabelSandboxUID: uid}})
	return err
}

// Until changes the end of a sandbox's life. The zero time means no end.
func (f *Fleet) Until(ctx context.Context, id string, end time.Time) (api.SandboxInfo, error) {
	secs := Seconds(end)
	sb, err := client.Life{Client: f.client}.SetLife(ctx, id, api.LifeRequest{TTLSecs: &secs})
	if err == nil {
		f.note(sb)
	}
	return sb, err
}

// Seconds returns the lifetime from now, at least one second, and 0 for the zero time.
func Seconds(end time.Time) float64 {
	if end.IsZero() {
		return 0
	}
	return max(1, min(time.Until(end).Seconds(), 315360000))
}
