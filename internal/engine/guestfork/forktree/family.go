package forktree

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

const (
	// maxUncollected is how many ended children a sandbox may leave uncollected:
	// beyond it no more can be made.
	maxUncollected = 256
	// maxHeld bounds the bytes of results that wait to be collected.
	maxHeld = 64 << 20
)

// Family is what is known of the children that one sandbox made. It is safe for
// concurrent use.
type Family struct {
	dir  string        // where ended children are kept; made when the first ends
	turn chan struct{} // holds a value while a fork of the sandbox is under way

	mu       sync.Mutex
	calls    map[string]*Call  // by token
	finished []string          // tokens of calls that have ended, oldest first
	children map[string]*child // by sandbox id
	held     int               // bytes of results that wait
	changed  chan struct{}     // closed, and made anew, when a child has ended
}

// child is a child that runs, or that nobody has collected yet.
type child struct {
	token   string
	ended   bool
	offered bool // to a waiter that has not confirmed it
	end     forkwire.Ended
	bytes   int // of its result
}

// NewFamily is a family without children. Those that have ended are kept in dir.
func NewFamily(dir string) *Family {
	return &Family{dir: dir, turn: make(chan struct{}, 1), calls: map[string]*Call{}, children: map[string]*child{},
		changed: make(chan struct{})}
}

// Turn waits until no other fork of the sandbox is under way.
func (f *Family) Turn(ctx context.Context) (leave func(), err error) {
	select {
	case f.turn <- struct{}{}:
		return func() { <-f.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// AddChild notes a child that runs. It reports true of one whose end is known
// already: an earlier daemon kept it, and did not come to end the machine.
func (f *Family) AddChild(id string, index int, token string) (ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.children[id]; k != nil {
		return k.ended
	}
	f.children[id] = &child{token: token, end: forkwire.Ended{ID: id, Index: index}}
	return false
}

// DropChild takes back what AddChild noted of a child that was never listed.
func (f *Family) DropChild(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetLocked(id)
}

// Drop forgets all children of a call, whose fork was taken back.
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

// Full says whether so many ended children wait that no more may be made.
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

// Ended notes a child's end. The first word counts: a child that exited is then
// killed, and stays one that exited. An unknown one is nobody's any more.
func (f *Family) Ended(id string, status forkwire.Status, code int, reason string, result []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.children[id]
	if k == nil || k.ended {
		return nil
	}
	if f.held+len(result) > maxHeld {
		return forkwire.Errorf(forkwire.Limit,
			"%d MiB of results wait to be collected already; try again, or leave none", f.held>>20)
	}
	end := k.end
	end.Status, end.Code, end.Reason = status, code, forkwire.Clip(reason)
	// Without a result, an end that has no file is lost only with the daemon.
	if err := f.writeFile(end, k.token, result); err != nil && len(result) > 0 {
		return err
	}
	k.end, k.ended, k.bytes = end, true, len(result)
	f.held += len(result)
	f.tellLocked()
	return nil
}

// tellLocked wakes those that wait.
func (f *Family) tellLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// End is a child's end in the hands of one waiter, who either has Collected it
// or gives it Back.
type End struct {
	forkwire.Ended
	Result []byte
	family *Family
}

// Wait returns the end of a child: one of ids, or any. An error that is a
// *forkwire.Error says that there is none to wait for; else ctx has ended.
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

// next is one look: an end, or a channel to wait for, or an error.
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
				f.forgetLocked(k.end.ID) // or nobody could ever wait for the others
				return End{}, nil, forkwire.Errorf(forkwire.Lost, "the result of %s: %v", k.end.ID, err)
			}
		}
		k.offered = true
		return End{k.end, result, f}, nil, nil
	}
	return End{}, f.changed, nil
}

// candidatesLocked are the children that a wait is for, in the order of their
// fork. One that has been collected is none any more.
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

// Collected forgets the child: its waiter has all of it.
func (e End) Collected() {
	e.family.mu.Lock()
	defer e.family.mu.Unlock()
	e.family.forgetLocked(e.ID)
}

// Back lets another waiter have it.
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
