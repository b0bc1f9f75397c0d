package cut

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Messages of one byte. A member sends ready and paused, and gets pause and done as the answers.
const (
	ready  = 'r'
	pause  = 'p'
	paused = 's'
	done   = 'd'
)

// Cut is the daemon's end of a cut.
type Cut struct {
	ours   []*os.File
	theirs []*os.File // of the members; nil after Leave
	once   sync.Once  // of Break
}

// New returns a cut of n members. Run serves it.
func New(n int) (*Cut, error) {
	c := &Cut{}
	for range n {
		a, b, err := unixfd.Pair(unix.SOCK_STREAM, "cut")
		if err != nil {
			c.Break()
			for i := range c.theirs {
				c.Leave(i)
			}
			return nil, err
		}
		c.ours, c.theirs = append(c.ours, a), append(c.theirs, b)
	}
	return c, nil
}

// File returns the end for a member's VMM. The cut keeps the file until Leave.
func (c *Cut) File(i int) *os.File { return c.theirs[i] }

// Leave closes the daemon's copy of a member's end, after the VMM's capture has ended. It is called once for each.
func (c *Cut) Leave(i int) { c.theirs[i].Close() }

// Run serves the cut until all members are paused. It returns an error if one of them left before, or if ctx ended.
// The cut is broken then.
func (c *Cut) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.Break)()
	err := c.round(ready, pause)
	if err == nil {
		err = c.round(paused, done)
	}
	if err != nil {
		c.Break()
	}
	return err
}

// round waits for a message of each member and then answers all.
func (c *Cut) round(want, answer byte) error {
	var reading sync.WaitGroup
	errs := make([]error, len(c.ours))
	for i, f := range c.ours {
		reading.Go(func() {
			if errs[i] = expect(f, want); errs[i] != nil {
				c.Break() // ends the reads of the others
			}
		})
	}
	reading.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %v", vmm.ErrCut, err)
	}
	for _, f := range c.ours {
		if _, err := f.Write([]byte{answer}); err != nil {
			return fmt.Errorf("%w: %v", vmm.ErrCut, err)
		}
	}
	return nil
}

// Break ends the cut for all members that are not done. It is idempotent.
func (c *Cut) Break() {
	c.once.Do(func() {
		for _, f := range c.ours {
			f.Close()
		}
	})
}

// expect reads one message.
func expect(f *os.File, want byte) error {
	var b [1]byte
	if _, err := f.Read(b[:]); err != nil {
		return err
	}
	if b[0] != want {
		return fmt.Errorf("got the message %q instead of %q", b[0], want)
	}
	return nil
}
