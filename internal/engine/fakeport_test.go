package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// fakeNet is a fake forkd-net. Like the real one, it outlives engines.
type fakeNet struct {
	t *testing.T

	mu    sync.Mutex
	down  bool // refuses new connections
	vms   map[string]sandbox.NetBinding
	ports []*fakePort
	binds [][]string // the sandboxes of each request
	said  []string   // requests, in order

	// Of requests to bind VMs: after binding, each sends a value to asked, waits until answers is
	// closed, and returns fails.
	answers chan struct{}
	fails   error
	asked   chan struct{}

	killed   int
	resolved []netpolicy.Exported // by every guest, while it runs
}

func newFakeNet(t *testing.T) *fakeNet {
	return &fakeNet{t: t, vms: map[string]sandbox.NetBinding{}, asked: make(chan struct{}, 64)}
}

func (n *fakeNet) connect(context.Context) (sandbox.NetPort, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errors.New("nobody is there")
	}
	p := &fakePort{fakeNet: n, done: make(chan struct{})}
	n.ports = append(n.ports, p)
	return p, nil
}

// kill ends it. The next one starts without its VMs.
func (n *fakeNet) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.vms {
		b.Wire.Close()
	}
	n.vms = map[string]sandbox.NetBinding{}
	for _, p := range n.ports {
		p.end()
	}
	n.ports = nil
	n.killed++
}

// of returns the bindings of a sandbox.
func (n *fakeNet) of(id string) (out []sandbox.NetBinding) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.vms {
		if b.Sandbox == id {
			out = append(out, b)
		}
	}
	return out
}

func (n *fakeNet) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.vms)
}

// connected reports whether the VM at the other end of a binding's wire has it open.
func connected(b sandbox.NetBinding) bool {
	fds := []unix.PollFd{{Fd: int32(b.Wire.Fd())}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&unix.POLLHUP == 0
}

type fakePort struct {
	*fakeNet
	once sync.Once
	done chan struct{}
}

// caLocked returns the certificate of a tag. It differs for each process.
func (n *fakeNet) caLocked(tag string, spec netpolicy.Spec) string {
	if len(spec.Headers) == 0 {
		return ""
	}
	return fmt.Sprintf("certificate %d of %s\n", n.killed, tag)
}

func (p *fakePort) end()                  { p.once.Do(func() { close(p.done) }) }
func (p *fakePort) Done() <-chan struct{} { return p.done }
func (p *fakePort) Close() error          { p.end(); return nil }

func (p *fakePort) Bind(ctx context.Context, vms []sandbox.NetBinding) ([]string, error) {
	p.mu.Lock()
	answers, fails := p.answers, p.fails
	p.mu.Unlock()
	var cas []string
	if fails == nil {
		var err error
		if cas, err = p.bind(vms); err != nil {
			return nil, err
		}
	}
	p.asked <- struct{}{}
	if answers != nil {
		select {
		case <-answers:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return cas, fails
}

func (p *fakePort) bind(vms []sandbox.NetBinding) (cas []string, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for _, b := range vms {
		fd, err := unix.FcntlInt(b.Wire.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		b.Wire = os.NewFile(uintptr(fd), "wire")
		p.vms[b.VM] = b
		ids, cas = append(ids, b.Sandbox), append(cas, p.caLocked(b.Tag, b.Spec))
	}
	p.binds = append(p.binds, ids)
	return cas, nil
}

func (p *fakePort) Update(_ context.Context, vm string, spec netpolicy.Spec) (ca string, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.vms[vm]
	if !ok {
		return "", errors.New("no such VM")
	}
	b.Spec = spec
	p.vms[vm] = b
	p.said = append(p.said, "update "+b.Sandbox)
	return p.caLocked(b.Tag, spec), nil
}

func (p *fakePort) Release(_ context.Context, vm string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, ok := p.vms[vm]; ok {
		b.Wire.Close()
		delete(p.vms, vm)
		p.said = append(p.said, "release "+b.Sandbox)
	}
	return nil
}

func (p *fakePort) List(context.Context) (names []string, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.vms {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Traffic returns one byte in and two out for each VM.
func (p *fakePort) Traffic(context.Context) (map[string]sandbox.NetUse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]sandbox.NetUse{}
	for name, b := range p.vms {
		out[name] = sandbox.NetUse{In: 1, Out: 2, Limit: b.Spec.Limits.BytesPerSecond}
	}
	return out, nil
}

// Facts returns the facts that the VM was bound with, and the ones resolved by all guests.
func (p *fakePort) Facts(_ context.Context, vm string) ([]netpolicy.Exported, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Concat(p.vms[vm].Facts, p.resolved), nil
}

func (p *fakePort) Flows(_ context.Context, vm string) ([]sandbox.NetFlow, error) {
	return []sandbox.NetFlow{{Protocol: "tcp", Guest: "192.0.0.2:4711", Far: "198.51.100.7:443", Name: vm}}, nil
}

func (p *fakePort) Log(ctx context.Context, vm string, follow bool, write func([]byte) error) error {
	if err := write([]byte(`{"vm":"` + vm + `"}`)); err != nil || !follow {
		return err
	}
	<-ctx.Done() // no lines follow
	return context.Cause(ctx)
}
