package forktree

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

const (
	// maxUncollected is the number of ended children a sandbox may leave uncollected. Beyond it the
	// sandbox can make no more children.
	maxUncollected = 256
	// maxHeld limits the bytes of results waiting to be collected.
	maxHeld = 64 << 20
)

// Family holds the records of the children one sandbox made. It is safe for concurrent use.
type Family struct {
	dir  string        // of ended children; created when the first child ends
	turn chan struct{} // holds a value during a fork of the sandbox

	mu       sync.Mutex
	calls    map[string]*Call  // by token
	finished []string          // tokens of finished calls, oldest first
	children map[string]*child // by sandbox id
	held     int               // bytes of uncollected results
	changed  chan struct{}     // closed and replaced when a child has ended
}

// child is a running or uncollected child.
type child struct {
	token   string
	ended   bool
	offered bool // to a waiter that has not confirmed it
	end     forkwire.Ended
	bytes   int // of its result
}

// NewFamily returns a family without children. Ended children are stored in dir.
func NewFamily(dir string) *Family {
	return &Family{dir: dir, turn: make(chan struct{}, 1), calls: map[string]*Call{}, children: map[string]*child{},
		changed: make(chan struct{})}
}

// Turn waits until no other fork of the sandbox is running.
func (f *Family) Turn(ctx context.Context) (leave func(), err error) {
	select {
	case f.turn <- struct{}{}:
		return func() { <-f.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// AddChild records a running child. It returns true if the child's end is already known: an earlier
// daemon recorded it, but did not end the VM.
func (f *Family) AddChild(id string, index int, token string) (ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.children[id]; k != nil {
		return k.ended
	}
	f.children[id] = &child{token: token, end: forkwire.Ended{ID: id, Index: index}}
	return false
}

// DropChild removes the record of a child that was never listed.
func (f *Family) DropChild(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetLocked(id)
}

// Drop removes the records of all children of a call after its fork was rolled back.
func (f *Family) Drop(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, k := range f.children {
		if k.token == token {
			f.forgetLocked(id)
		}
	}
}

func (f *Family) forgetLocked(id string) {
	k := f.children[id]
	if k == nil {
		return
	}
	delete(f.children, id)
	f.held -= k.bytes
	if k.ended {
		f.removeFile(id)
	}
	f.tellLocked()
}

// Full returns an error if too many ended children wait to be collected.
func (f *Family) Full() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := 0
	for _, k := range f.children {
		if k.ended {
			waiting++
		}
	}
	if waiting >= maxUncollected {
		return forkwire.Errorf(forkwire.Limit,
			"%d children have ended and wait to be collected; collect them with forkd-wait", waiting)
	}
	return nil
}

// Ended records a child's end. The first report counts: a child that exited and is then killed
// stays recorded as exited. Ended ignores an unknown child.
func (f *Family) Ended(id string, status forkwire.Status, code int, reason string, result []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.children[id]
	if k == nil || k.ended {
		return nil
	}
	if f.held+len(result) > maxHeld {
		return forkwire.Errorf(forkwire.Limit,
			"%d MiB of results are not collected yet; retry, or leave no result", f.held>>20)
	}
	end := k.end
	end.Status, end.Code, end.Reason = status, code, forkwire.Clip(reason)
	// Without a result, an end that was not written to a file is lost only with the daemon.
	if err := f.writeFile(end, k.token, result); err != nil && len(result) > 0 {
		return err
	}
	k.end, k.ended, k.bytes = end, true, len(result)
	f.held += len(result)
	f.tellLocked()
	return nil
}

// tellLocked wakes the waiters.
func (f *Family) tellLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// End is a child's end, offered to one waiter. The waiter must call Collected or Back.
type End struct {
	forkwire.Ended
	Result []byte // bytes that the child left; nil if it left none
	family *Family
}

// Wait returns the end of a child: one of ids, or any child if ids is empty. A *forkwire.Error
// means that there is no child to wait for; any other error means that ctx has ended.
func (f *Family) Wait(ctx context.Context, ids []string) (End, error) {
	for {
		end, changed, err := f.next(ids)
		if err != nil || changed == nil {
			return end, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return End{}, context.Cause(ctx)
		}
	}
}

// next checks once. It returns an end, a channel to wait for, or an error.
func (f *Family) next(ids []string) (End, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	candidates := f.candidatesLocked(ids)
	if len(candidates) == 0 {
		return End{}, nil, forkwire.Errorf(forkwire.NoChildren, "there is no child to wait for")
	}
	for _, k := range candidates {
		if !k.ended || k.offered {
			continue
		}
		var result []byte
		if k.bytes > 0 {
			var err error
			if result, err = f.readResult(k.end.ID); err != nil {
				f.forgetLocked(k.end.ID) // otherwise waits for the others would never succeed
				return End{}, nil, forkwire.Errorf(forkwire.Lost, "the result of %s: %v", k.end.ID, err)
			}
		}
		k.offered = true
		return End{k.end, result, f}, nil, nil
	}
	return End{}, f.changed, nil
}

// candidatesLocked returns the children to wait for, in the order of their fork. A collected child
// is not among them.
func (f *Family) candidatesLocked(ids []string) []*child {
	var out []*child
	if len(ids) == 0 {
		for _, k := range f.children {
			out = append(out, k)
		}
	}
	for _, id := range ids {
		if k := f.children[id]; k != nil {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b *child) int {
		return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.end.Index, b.end.Index))
	})
	return out
}

// Collected forgets the child. Its waiter has received everything.
func (e End) Collected() {
	e.family.mu.Lock()
	defer e.family.mu.Unlock()
	e.family.forgetLocked(e.ID)
}

// Back offers the child to other waiters again.
func (e End) Back() {
	e.family.mu.Lock()
	defer e.family.mu.Unlock()
	if k := e.family.children[e.ID]; k != nil {
		k.offered = false
		e.family.tellLocked()
	}
}

func sortChildren(c []forkwire.Child) {
	slices.SortFunc(c, func(a, b forkwire.Child) int { return cmp.Compare(a.Index, b.Index) })
}
