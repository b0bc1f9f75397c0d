package enginefake

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

// Net is a fake forkd-net. Like the real one, it outlives engines.
type Net struct {
	T *testing.T

	Mu    sync.Mutex // guards the fields below
	Down  bool       // refuses new connections
	vms   map[string]sandbox.NetBinding
	ports []*fakePort
	Binds [][]string // the sandboxes of each request
	said  []string   // requests, in order

	// Of requests to bind VMs: after binding, each sends a value to Asked, waits until Answers is
	// closed, and returns Fails.
	Answers chan struct{}
	Fails   error
	Asked   chan struct{}

	killed   int
	Resolved []netpolicy.Exported // by every guest, while it runs
}

// NewNet returns a forkd-net that answers.
func NewNet(t *testing.T) *Net {
	return &Net{T: t, vms: map[string]sandbox.NetBinding{}, Asked: make(chan struct{}, 64)}
}

// Connect is a Config.NetConnect.
func (n *Net) Connect(context.Context) (sandbox.NetPort, error) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	if n.Down {
		return nil, errors.New("nobody is there")
	}
	p := &fakePort{Net: n, done: make(chan struct{})}
	n.ports = append(n.ports, p)
	return p, nil
}

// Kill ends it. The next one starts without its VMs.
func (n *Net) Kill() {
	n.Mu.Lock()
	defer n.Mu.Unlock()
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

// Of returns the bindings of a sandbox.
func (n *Net) Of(id string) (out []sandbox.NetBinding) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	for _, b := range n.vms {
		if b.Sandbox == id {
			out = append(out, b)
		}
	}
	return out
}

// Count returns the number of bound VMs.
func (n *Net) Count() int {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return len(n.vms)
}

// Connected reports whether the VM at the other end of a binding's wire has it open.
func Connected(b sandbox.NetBinding) bool {
	fds := []unix.PollFd{{Fd: int32(b.Wire.Fd())}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&unix.POLLHUP == 0
}

type fakePort struct {
	*Net
	once sync.Once
	done chan struct{}
}

// caLocked returns the certificate of a tag. It differs for each process.
func (n *Net) caLocked(tag string, spec netpolicy.Spec) string {
	if len(spec.Headers) == 0 {
		return ""
	}
	return fmt.Sprintf("certificate %d of %s\n", n.killed, tag)
}

func (p *fakePort) end()                  { p.once.Do(func() { close(p.done) }) }
func (p *fakePort) Done() <-chan struct{} { return p.done }
func (p *fakePort) Close() error          { p.end(); return nil }

func (p *fakePort) Bind(ctx context.Context, vms []sandbox.NetBinding) ([]string, error) {
	p.Mu.Lock()
	answers, fails := p.Answers, p.Fails
	p.Mu.Unlock()
	var cas []string
	if fails == nil {
		var err error
		if cas, err = p.bind(vms); err != nil {
			return nil, err
		}
	}
	p.Asked <- struct{}{}
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
	p.Mu.Lock()
	defer p.Mu.Unlock()
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
	p.Binds = append(p.Binds, ids)
	return cas, nil
}

func (p *fakePort) Update(_ context.Context, vm string, spec netpolicy.Spec) (ca string, _ error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
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
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if b, ok := p.vms[vm]; ok {
		b.Wire.Close()
		delete(p.vms, vm)
		p.said = append(p.said, "release "+b.Sandbox)
	}
	return nil
}

func (p *fakePort) List(context.Context) (names []string, _ error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for name := range p.vms {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Traffic returns one byte in and two out for each VM.
func (p *fakePort) Traffic(context.Context) (map[string]sandbox.NetUse, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	out := map[string]sandbox.NetUse{}
	for name, b := range p.vms {
		out[name] = sandbox.NetUse{In: 1, Out: 2, Limit: b.Spec.Limits.BytesPerSecond}
	}
	return out, nil
}

// Facts returns the facts that the VM was bound with, and the ones resolved by all guests.
func (p *fakePort) Facts(_ context.Context, vm string) ([]netpolicy.Exported, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return slices.Concat(p.vms[vm].Facts, p.Resolved), nil
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
