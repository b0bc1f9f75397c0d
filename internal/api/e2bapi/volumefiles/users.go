package volumefiles

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/volume"
)

// all is the weight that excludes other users of a volume. It is also the number of requests at a time.
const all = 64

// users counts the requests at the files of each volume.
type users struct {
	mu sync.Mutex
	of map[string]*room // by id, while it has users
}

type room struct {
	seats *semaphore.Weighted
	users int // that have or wait for seats
}

// enter waits for a number of seats at a volume.
func (u *users) enter(ctx context.Context, id string, seats int64) (leave func(), err error) {
	u.mu.Lock()
	if u.of == nil {
		u.of = map[string]*room{}
	}
	r := u.of[id]
	if r == nil {
		r = &room{seats: semaphore.NewWeighted(all)}
		u.of[id] = r
	}
	r.users++
	u.mu.Unlock()
	gone := func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if r.users--; r.users == 0 {
			delete(u.of, id)
		}
	}
	if err := r.seats.Acquire(ctx, seats); err != nil {
		gone()
		return nil, context.Cause(ctx)
	}
	return func() {
		r.seats.Release(seats)
		gone()
	}, nil
}

// patience is how long a new user of a volume waits for transfers of its files.
const patience = 10 * time.Second

// leaveAlone waits until no request uses the files of a volume.
func (u *users) leaveAlone(ctx context.Context, v volume.Volume) (leave func(), err error) {
	wait, cancel := context.WithTimeoutCause(ctx, patience, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonVolumeHeld,
		"files of volume %s have been read or written for %s: try again when the transfers have ended", v.Name, patience))
	defer cancel()
	return u.enter(wait, v.ID, all)
}
