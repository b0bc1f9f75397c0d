package httpapi

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/api/routes/daemon"
)

// limits bound the cost of clients before authentication, and of refused requests.
type limits struct {
	header       time.Duration // for a request's header to arrive
	body         time.Duration // for a JSON body to arrive
	waiting      int           // connections of a listener without a request in a handler
	swallowBytes int64
	events       daemon.EventPace
	deadlines    iodeadline.Limits
	memory       int64 // for bodies and outputs of all requests in flight
}

func defaultLimits() limits {
	return limits{header: listen.HeaderTimeout, body: 30 * time.Second, waiting: 256, swallowBytes: 256 << 20,
		events: daemon.DefaultEventPace(), memory: maxInFlight,
		deadlines: iodeadline.Limits{Read: time.Minute, Write: 30 * time.Second, Rest: 10 * time.Second}}
}

// Run serves all listeners until ctx ends, then stops in order: it accepts no more connections,
// gives requests in flight the grace period to end, then cuts them off. It returns when all
// handlers have returned. It owns the listeners.
func (s *Server) Run(ctx context.Context, listeners []listen.Listener, grace time.Duration) error {
	return listen.Servers{
		Handler: s.Handler, Header: s.limits.header, Write: s.limits.deadlines.Write, Waiting: s.limits.waiting,
		HTTP2: s.ingress != nil, Log: s.answers.Log, ErrorLog: s.answers.ServerLog(), Stopping: s.streams.Stop,
	}.Run(ctx, listeners, grace)
}
