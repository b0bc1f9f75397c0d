package network

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// trafficTimeout is short, because the list of sandboxes waits for it.
const trafficTimeout = 500 * time.Millisecond

// Traffic fills in the network traffic of each sandbox with accounting. It leaves it empty while
// forkd-net does not answer.
func Traffic(w *Wires, list []sandbox.Info) []sandbox.Info {
	w.mu.Lock()
	port, some := w.port, len(w.wires) > 0
	w.mu.Unlock()
	if port == nil || !some {
		return list
	}
	ctx, cancel := context.WithTimeout(context.Background(), trafficTimeout)
	defer cancel()
	had, err := port.Traffic(ctx)
	if err != nil {
		return list
	}
	for i, s := range list {
		if n, is := had[s.Network.Wire]; is && s.Use != nil {
			list[i].Use.Net = n
		}
	}
	return list
}
