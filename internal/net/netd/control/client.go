package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// ErrClosed is the error after the connection to forkd-net has ended. The caller may dial again.
var ErrClosed = errors.New("connection to forkd-net has ended")

// Client is the daemon's end. Its methods are safe for concurrent use.
type Client struct {
	conn *conn
	done chan struct{}

	mu      sync.Mutex
	last    uint64                     // id of the last request
	waiting map[uint64]chan<- envelope // by id; buffered for one answer
	err     error                      // reason for the end

	features []string // of forkd-net
}

// Dial connects to the forkd-net that listens at path.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("connect to forkd-net: %w", err)
	}
	return NewClient(ctx, c.(*net.UnixConn))
}

// NewClient takes ownership of a connection and sends the hello.
func NewClient(ctx context.Context, u *net.UnixConn) (*Client, error) {
	if err := checkPeer(u); err != nil {
		u.Close()
		return nil, err
	}
	c := &Client{conn: &conn{c: u}, done: make(chan struct{}), waiting: map[uint64]chan<- envelope{}}
	go c.receive()
	var answer helloBody
	if err := c.call(ctx, opHello, helloBody{Version: Version, Program: "forkd"}, nil, &answer); err != nil {
		c.Close()
		return nil, err
	}
	if answer.Version != Version {
		c.Close()
		return nil, fmt.Errorf("%w: forkd-net has %d, the daemon %d", ErrVersion, answer.Version, Version)
	}
	c.features = answer.Features
	return c, nil
}

// enforces returns an error if forkd-net does not know a part of a policy.
func (c *Client) enforces(spec netpolicy.Spec) error {
	if spec.Proxy != nil && !slices.Contains(c.features, featureProxy) {
		return fmt.Errorf("%w: the running forkd-net is older and has no proxies in policies: it ends, and a new one "+
			"starts, when no sandbox with a network is left", ErrInvalid)
	}
	return nil
}

// Close ends the connection and waits for its end. VMs stay bound.
func (c *Client) Close() {
	c.conn.close()
	<-c.done
}

// Done returns a channel that is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Bind binds VMs, in batches, each with its end of the wire. It leaves these ends open. It returns
// a result for each VM. The error applies to all VMs without a result.
func (c *Client) Bind(ctx context.Context, vms []Binding) ([]Bound, error) {
	for _, b := range vms {
		if err := b.check(); err != nil {
			return nil, err
		}
		if b.Wire == nil {
			return nil, fmt.Errorf("%w: %s has no wire", ErrInvalid, b.VM)
		}
		if err := c.enforces(b.Spec); err != nil {
			return nil, err
		}
		if b.Member != nil && !slices.Contains(c.features, featureMember) {
			return nil, fmt.Errorf("%w: the running forkd-net is older and has no private networks: it ends, and a new one "+
				"starts, when no sandbox with a network is left", ErrInvalid)
		}
	}
	var all []Bound
	for len(vms) > 0 {
		batch := vms[:min(len(vms), MaxBatch)]
		vms = vms[len(batch):]
		files := make([]*os.File, len(batch))
		for i, b := range batch {
			files[i] = b.Wire
		}
		var answer boundBody
		if err := c.call(ctx, opBind, bindBody{VMs: batch}, files, &answer); err != nil {
			return all, err
		}
		if len(answer.VMs) != len(batch) {
			return all, fmt.Errorf("%w: %d results of a bind of %d", errMessage, len(answer.VMs), len(batch))
		}
		all = append(all, answer.VMs...)
	}
	return all, nil
}

// Update replaces the policy of a VM. When it returns, flows no longer allowed are cut.
func (c *Client) Update(ctx context.Context, vm string, spec netpolicy.Spec) (Bound, error) {
	var answer Bound
	if err := c.enforces(spec); err != nil {
		return answer, err
	}
	err := c.call(ctx, opUpdate, updateBody{VM: vm, Spec: spec}, nil, &answer)
	return answer, err
}

// Release ends a VM's flows and forgets the VM.
func (c *Client) Release(ctx context.Context, vm string) error {
	return c.call(ctx, opRelease, vmBody{vm}, nil, nil)
}

// List returns the bound VMs.
func (c *Client) List(ctx context.Context) ([]Listed, error) {
	var answer listBody
	err := c.call(ctx, opList, nil, nil, &answer)
	return answer.VMs, err
}

// Traffic returns the traffic of each VM.
func (c *Client) Traffic(ctx context.Context) ([]Traffic, error) {
	var answer trafficBody
	err := c.call(ctx, opTraffic, nil, nil, &answer)
	return answer.VMs, err
}

// Flows returns a VM's live flows.
func (c *Client) Flows(ctx context.Context, vm string) ([]Flow, error) {
	var answer flowsBody
	err := c.call(ctx, opFlows, vmBody{vm}, nil, &answer)
	return answer.Flows, err
}

// Refusals returns the last refusals of a VM, newest first.
func (c *Client) Refusals(ctx context.Context, vm string) ([]Line, error) {
	var answer linesBody
	err := c.call(ctx, opRefusals, vmBody{vm}, nil, &answer)
	return answer.Lines, err
}

// Untold returns the refusals of all VMs since the previous call.
func (c *Client) Untold(ctx context.Context) (Untold, error) {
	var answer Untold
	err := c.call(ctx, opUnreported, nil, nil, &answer)
	return answer, err
}

// Facts returns the names that the VM's guest has resolved, for the bindings of its clones.
func (c *Client) Facts(ctx context.Context, vm string) (json.RawMessage, error) {
	var answer json.RawMessage
	err := c.call(ctx, opFacts, vmBody{vm}, nil, &answer)
	return answer, err
}

// Stats returns forkd-net's counters.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	var answer Stats
	err := c.call(ctx, opStats, nil, nil, &answer)
	return answer, err
}

// Shutdown ends forkd-net and all flows, before a forkd-net with other settings takes its place.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.call(ctx, opShutdown, nil, nil, nil)
}

// Follow calls handle with each audit line of a VM, or of all VMs if vm is "", until ctx or the
// connection ends. From this call on, the connection serves only the subscription.
func (c *Client) Follow(ctx context.Context, vm string, handle func(Line)) error {
	lines := make(chan envelope, 256)
	id, err := c.begin(lines)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, c.conn.close)
	defer stop()
	if err := c.send(id, opSubscribe, vmBody{vm}, nil); err != nil {
		return err
	}
	var broken error
	for e := range lines { // read all, so receive does not block on unread lines
		var l Line
		switch {
		case broken != nil || e.Err == nil && len(e.Body) == 0: // the subscription has begun
			continue
		case e.Err != nil:
			broken = e.Err
		default:
			broken = json.Unmarshal(e.Body, &l)
		}
		if broken != nil {
			c.conn.close()
			continue
		}
		handle(l)
	}
	if broken != nil {
		return broken
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return c.cause()
}

// call sends a request and waits for its answer.
func (c *Client) call(ctx context.Context, op string, body any, files []*os.File, answer any) error {
	reply := make(chan envelope, 1)
	id, err := c.begin(reply)
	if err != nil {
		return err
	}
	if err := c.send(id, op, body, files); err != nil {
		return err
	}
	select {
	case e, ok := <-reply:
		switch {
		case !ok:
			return fmt.Errorf("%s: %w", op, c.cause())
		case e.Err != nil:
			return e.Err
		case answer == nil:
			return nil
		}
		if err := json.Unmarshal(e.Body, answer); err != nil {
			return fmt.Errorf("answer to %s: %w", op, err)
		}
		return nil
	case <-ctx.Done():
		c.forget(id)
		return context.Cause(ctx)
	}
}

func (c *Client) begin(reply chan<- envelope) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.last++
	c.waiting[c.last] = reply
	return c.last, nil
}

func (c *Client) send(id uint64, op string, body any, files []*os.File) error {
	err := c.conn.write(envelope{ID: id, Op: op}, body, files)
	if err != nil {
		c.forget(id)
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

func (c *Client) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// receive passes answers to the waiting callers until the connection ends.
func (c *Client) receive() {
	defer close(c.done)
	for {
		e, _, err := c.conn.read(0)
		if err != nil {
			c.end(err)
			return
		}
		c.mu.Lock()
		reply := c.waiting[e.ID]
		if cap(reply) == 1 {
			delete(c.waiting, e.ID) // only one answer is expected
		}
		c.mu.Unlock()
		if reply == nil {
			continue // the caller has given up
		}
		reply <- e
	}
}

func (c *Client) end(err error) {
	c.conn.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = fmt.Errorf("%w: %w", ErrClosed, err)
	for _, reply := range c.waiting {
		close(reply)
	}
	clear(c.waiting)
}
