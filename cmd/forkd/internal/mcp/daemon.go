package mcp

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// daemon is the connection to the daemon, which the first request makes. A session can so begin
// although the daemon takes minutes to start.
type daemon struct {
	connect func(context.Context) (*client.Client, error)
	making  singleflight.Group

	mu     sync.Mutex // guards the fields below
	client *client.Client
}

// get returns the client. A cancelled request does not interrupt the start of the daemon, because
// other requests wait for it.
func (d *daemon) get(ctx context.Context) (*client.Client, error) {
	d.mu.Lock()
	c := d.client
	d.mu.Unlock()
	if c != nil {
		return c, nil
	}
	made := d.making.DoChan("", func() (any, error) {
		c, err := d.connect(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.client = c
		return c, nil
	})
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case r := <-made:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*client.Client), nil
	}
}

func (d *daemon) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client == nil {
		return nil
	}
	return d.client.Close()
}

// leases has the requests about lifetimes.
type leases struct{ daemon *daemon }

// SetTTL implements lease.Daemon.
func (l leases) SetTTL(ctx context.Context, id string, ttl time.Duration) error {
	c, err := l.daemon.get(ctx)
	if err != nil {
		return err
	}
	seconds, end := ttl.Seconds(), api.AtEndKill
	_, err = client.Life{Client: c}.SetLife(ctx, id, api.LifeRequest{TTLSecs: &seconds, AtEnd: &end})
	return err
}

// Kill implements lease.Daemon.
func (l leases) Kill(ctx context.Context, id string) error {
	c, err := l.daemon.get(ctx)
	if err != nil {
		return err
	}
	if err := c.Kill(ctx, id); !client.IsNotFound(err) {
		return err
	}
	return nil
}

// Exists implements lease.Daemon.
func (l leases) Exists(ctx context.Context, id string) (bool, error) {
	c, err := l.daemon.get(ctx)
	if err != nil {
		return false, err
	}
	sb, err := c.Sandbox(ctx, id)
	if client.IsNotFound(err) {
		return false, nil
	}
	return sb.Status != api.SandboxFailed, err
}
