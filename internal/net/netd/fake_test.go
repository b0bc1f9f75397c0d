package netd_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netd"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netproxy"
	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/net/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRules judges as a test defines, and allows loopback.
type fakeRules struct {
	mu       sync.Mutex
	flow     func(netd.Question) netd.Verdict
	names    map[string][]netip.Addr
	attested bool
	limits   netpolicy.Limits
	headers  map[string]map[string]string
	// deniesMember decides about flows to members of private networks. Nil allows all.
	deniesMember func(name string, port uint16) bool
	bound        map[string]control.Binding // by VM
}

func allowAll(netd.Question) netd.Verdict { return netd.Verdict{Outcome: netd.Allow, Rule: "all"} }

func (r *fakeRules) set(flow func(netd.Question) netd.Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flow = flow
}

func (r *fakeRules) New(b control.Binding) (netd.Judge, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bound == nil {
		r.bound = map[string]control.Binding{}
	}
	r.bound[b.VM] = b
	return &fakeJudge{r}, nil
}

type fakeJudge struct{ *fakeRules }

func (j *fakeJudge) Flow(q netd.Question) netd.Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.flow(q)
}

func (j *fakeJudge) Name(name string, _ uint16) netd.Verdict {
	if _, ok := j.names[name]; ok {
		return netd.Verdict{Outcome: netd.Allow, Rule: name}
	}
	return netd.Verdict{Text: "no rule allows " + name}
}

func (j *fakeJudge) Member(name string, _ netwire.Protocol, port uint16) netd.Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.deniesMember != nil && j.deniesMember(name, port) {
		return netd.Verdict{Text: "no rule allows " + name}
	}
	return netd.Verdict{Outcome: netd.Allow}
}

func (j *fakeJudge) Attested(string, netip.Addr) bool { return j.attested }

func (j *fakeJudge) Resolve(_ context.Context, name string) ([]netip.Addr, error) {
	if a := j.names[name]; len(a) > 0 {
		return a, nil
	}
	return nil, errors.New("no such name")
}

func (j *fakeJudge) DNS(_ context.Context, query []byte, _ bool) []byte {
	return append([]byte("answer to "), query...)
}

func (j *fakeJudge) Limits() netpolicy.Limits {
	if j.limits.Flows > 0 {
		return j.limits
	}
	return netpolicy.Limits{Flows: 1024, FlowsPerSecond: 100000, DNSPerSecond: 100}
}

func (j *fakeJudge) Headers(host string) map[string]string { return j.headers[host] }
func (j *fakeJudge) Signer(string) netproxy.Signer         { return nil }
func (j *fakeJudge) HasHeaders() bool                      { return len(j.headers) > 0 }
func (j *fakeJudge) Proxy(_ context.Context, via *netpolicy.Via) (*upstream.Proxy, []netip.AddrPort, error) {
	return upstream.New(via.URL), []netip.AddrPort{via.Addr}, nil
}
func (j *fakeJudge) Update(netpolicy.Spec) error { return nil }
func (j *fakeJudge) Facts() json.RawMessage      { return nil }
func (j *fakeJudge) Close()                      {}

// bench is a Server with VMs. The test plays their VMMs.
type bench struct {
	t     *testing.T
	rules *fakeRules
	s     *netd.Server
	audit string
}

func newBench(t *testing.T, change ...func(*netd.Config)) *bench {
	t.Helper()
	b := &bench{t: t, rules: &fakeRules{flow: allowAll}, audit: filepath.Join(t.TempDir(), "audit.log")}
	cfg := netd.Config{Rules: b.rules, AuditPath: b.audit, Warn: func(err error) { t.Log(err) },
		OnShutdown: func() {}, Descriptors: 1 << 20}
	for _, c := range change {
		c(&cfg)
	}
	s, err := netd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.s = s
	t.Cleanup(s.Close)
	return b
}

// guest is a VMM's end of a wire.
type guest struct {
	t    *testing.T
	name string
	wire *netwire.Conn
	id   uint32
}

func (b *bench) bind(name string, handover bool) *guest {
	b.t.Helper()
	return b.bindAs(control.Binding{VM: name, Sandbox: "s-" + name, Handover: handover})
}

func (b *bench) bindAs(as control.Binding) *guest {
	b.t.Helper()
	ours, theirs, err := netwire.Pair()
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.s.Bind(as, descriptor(b.t, theirs)); err != nil {
		b.t.Fatal(err)
	}
	wire, err := netwire.NewConn(ours)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { wire.Close() })
	return &guest{t: b.t, name: as.VM, wire: wire}
}

// descriptor returns f's descriptor and closes f.
func descriptor(t *testing.T, f *os.File) int {
	t.Helper()
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

var guestAddr = netip.MustParseAddrPort("192.0.0.2:40000")

// ask opens a flow and returns the answer.
func (g *guest) ask(p netwire.Protocol, far netip.AddrPort) (netwire.Message, *os.File) {
	g.t.Helper()
	g.id++
	from := guestAddr
	if far.Addr().Is6() {
		from = netip.MustParseAddrPort("[fd66:6f72:6b64::2]:40000")
	}
	m := netwire.Message{Kind: netwire.Open, ID: g.id, Flow: netwire.Flow{Protocol: p, Guest: from, Far: far}}
	if err := g.wire.Send(m); err != nil {
		g.t.Fatal(err)
	}
	answer, f, err := g.receive()
	if err != nil || answer.ID != g.id {
		g.t.Fatalf("answer %+v: %v", answer, err)
	}
	return answer, f
}

// receive returns the next answer. It skips messages about the end of streams.
func (g *guest) receive() (netwire.Message, *os.File, error) {
	for {
		m, f, err := g.wire.Receive(true)
		if err != nil || m.Kind != netwire.Finished && m.Kind != netwire.Broken {
			return m, f, err
		}
	}
}

// open opens a flow, which must succeed.
func (g *guest) open(p netwire.Protocol, far netip.AddrPort) net.Conn {
	g.t.Helper()
	answer, f := g.ask(p, far)
	if f == nil {
		g.t.Fatalf("%s is answered %+v", far, answer)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		g.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	g.t.Cleanup(func() { c.Close() })
	return c
}

func (g *guest) openTCP(far netip.AddrPort) net.Conn { return g.open(netwire.TCP, far) }

// hangUp closes a socket as a VMM does if forkd-net has a duplicate.
func hangUp(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		t.CloseWrite()
		t.CloseRead()
	}
	c.Close()
}

// listen serves TCP on loopback with handle, and closes each connection after it.
func listen(t *testing.T, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	return listenAt(t, "127.0.0.1:0", handle)
}

func listenAt(t *testing.T, at string, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	var conns []net.Conn // owned by the accepting goroutine until it has ended
	wait.Go(func() {
		defer func() {
			for _, c := range conns { // forkd-net may have duplicates of the other ends
				c.Close()
			}
		}()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			wait.Go(func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() { l.Close(); wait.Wait() })
	return netip.MustParseAddrPort(l.Addr().String())
}

func echoTCP(c *net.TCPConn) { io.Copy(c, c) }

// eventually waits for work of other goroutines.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// lines returns the lines of the audit, after closing the Server.
func (b *bench) lines() (all []control.Line) {
	b.t.Helper()
	f, err := os.Open(b.audit)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	for dec := json.NewDecoder(f); ; {
		var l control.Line
		if err := dec.Decode(&l); err == io.EOF {
			return all
		} else if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, l)
	}
}
