package mcp

import (
	"context"
	"sync"
	"time"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/mcp/lease"
)

// session is what one user of the server has: sandboxes, outputs, open ports.
type session struct {
	opt     Options
	daemon  *daemon
	lease   *lease.Holder
	outputs outputs
	ports   forwards

	ctx     context.Context // ends with the session; calls in progress end with it
	cancel  context.CancelFunc
	running sync.WaitGroup
	end     sync.Once

	mu   sync.Mutex      // guards made
	made map[string]bool // tags of snapshots the session made
}

// endTime limits the requests at the end of a session. The leases end what is left.
const endTime = 20 * time.Second

// close ends the session: calls in progress, ports, and sandboxes that are not kept.
func (n *session) close() {
	n.end.Do(func() {
		n.cancel()
		n.running.Wait()
		n.ports.close()
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		ended, err := n.lease.End(ctx)
		if err != nil {
			n.opt.Log.Warn("sandboxes are left to their leases", "lease", n.opt.Lease, "error", err)
		}
		n.opt.Log.Info("session ended", "sandboxes_ended", ended, "sandboxes_kept", len(n.lease.IDs()))
	})
}

// during returns a context for one call, which ends with the session, too.
func (n *session) during(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.ctx, cancel)
	used := n.lease.Use()
	return ctx, func() {
		used()
		stop()
		cancel()
	}
}

// client returns the daemon's client.
func (n *session) client(ctx context.Context) (*client.Client, error) { return n.daemon.get(ctx) }

// noteMade records a snapshot of the session.
func (n *session) noteMade(tag string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.made[tag] = true
}

func (n *session) hasMade(tag string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.made[tag]
}
