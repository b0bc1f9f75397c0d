package agent

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

// Times of notices to the host. A notice says only that services have changed, so several changes
// need one notice.
const (
	noticePause = 500 * time.Millisecond // after a notice
	noticeTries = 8
)

// servicesChanged notes a change for the host. It does not block.
func (a *Agent) servicesChanged() {
	select {
	case a.notice <- struct{}{}:
	default:
	}
}

// ServeNotices tells the host about changes of services, until ctx ends. It has no timer while nothing
// changes.
func (a *Agent) ServeNotices(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.notice:
		}
		for wait := noticePause; ; wait *= 2 {
			err := a.sendNotice(ctx)
			if !ctxsleep.For(ctx, wait) {
				return
			}
			if err == nil || wait > noticePause<<noticeTries {
				break // the host is away for long: it reads the services when it is back
			}
		}
	}
}

// sendNotice connects to the host's port. The connection is the message.
func (a *Agent) sendNotice(ctx context.Context) error {
	c, err := a.cfg.DialNotice(ctx)
	if err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Read(make([]byte, 1)) // the host closes when it has seen the connection
	return c.Close()
}
