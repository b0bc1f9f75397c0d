package guest

import (
	"context"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
)

// Limits of reading services after a notice of their guest.
const (
	noticeTimeout = 10 * time.Second
	noticesAtOnce = 8
)

// Notices reads the services of guests that report a change, for lists and events. A reading is no
// use of the sandbox: it neither wakes a paused sandbox nor keeps an idle one running.
type Notices struct {
	cfg   Config
	turns chan struct{} // has a value for each reading

	mu   sync.Mutex
	busy map[string]bool // by sandbox: true if there was another notice during its reading
}

// NewNotices returns Notices.
func NewNotices(c Config) *Notices {
	return &Notices{cfg: c, turns: make(chan struct{}, noticesAtOnce), busy: map[string]bool{}}
}

// Note reads a sandbox's services in the background. It does not block. Notices during a reading
// make one more.
func (n *Notices) Note(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, busy := n.busy[id]; busy {
		n.busy[id] = true
		return
	}
	ctx, done, err := n.cfg.Begin(n.cfg.Closing)
	if err != nil {
		return // the daemon closes
	}
	n.busy[id] = false
	go func() { // counted by Begin
		defer done()
		for again := true; again; again = n.again(id) {
			n.read(ctx, id)
		}
	}()
}

// Adopt reads the services of the sandboxes that had some when the daemon was last running.
func (n *Notices) Adopt(context.Context) {
	for _, i := range n.cfg.Sandboxes.List() {
		if i.HasServices && i.Status == sandbox.StatusRunning {
			n.Note(i.ID)
		}
	}
}

func (n *Notices) again(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	again := n.busy[id] && n.cfg.Closing.Err() == nil
	n.busy[id] = false
	if !again {
		delete(n.busy, id)
	}
	return again
}

func (n *Notices) read(ctx context.Context, id string) {
	select {
	case n.turns <- struct{}{}:
		defer func() { <-n.turns }()
	case <-ctx.Done():
		return
	}
	s, m, err := n.cfg.Sandboxes.Running(id)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	l, err := m.Agent.Services(ctx, 0)
	if err != nil {
		n.cfg.Log.Debug("read a guest's services", "sandbox", id, "err", err)
		return
	}
	now, known := sandbox.ServicesOf(l.Services), s.Info().HasServices
	before := sandboxes.SetServices(s, now)
	if before == nil && known {
		return // an earlier daemon knew them: the changes since are unknown
	}
	kinds, details := sandbox.ServiceEvents(s.Info(), before, now)
	for i, kind := range kinds {
		n.cfg.Tell(kind, id, details[i])
	}
}
