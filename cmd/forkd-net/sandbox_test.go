package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/landlock"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netd/nettest"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/testing/statictest"
)

// Values of argument 0. They make the test binary act as another program.
const (
	asProgram = "forkd-net"         // the complete program
	asAttempt = "forkd-net-attempt" // confined, it makes one attempt
)

func TestMain(m *testing.M) {
	var err error
	switch os.Args[0] {
	case asProgram:
		err = run(os.Args[1:])
	case asAttempt:
		err = attempt(os.Args[1], os.Args[2], os.Args[3])
	default:
		statictest.Main()
		nettest.Main(m, (*testing.M).Run)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process is a forkd-net started in the daemon's way.
type process struct {
	*control.Client
	t    *testing.T
	cmd  *exec.Cmd
	dir  string
	said *output
	ids  uint32
}

// output collects the output of a process. It may be read while the process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

const long = 30 * time.Second

// start starts the program. At the end of the test it must still run, and must exit after SIGTERM.
func start(t *testing.T, env []string, flags ...string) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "fn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &process{t: t, dir: dir, said: &output{}}
	log := filepath.Join(dir, "audit.log")
	if err := errors.Join(os.WriteFile(log, nil, 0o600), os.Truncate(log, 17<<20)); err != nil { // already full
		t.Fatal(err)
	}
	path := filepath.Join(dir, "control.sock")
	p.cmd = exec.Command("/proc/self/exe", append([]string{"--control", path, "--log", log}, flags...)...)
	p.cmd.Args[0], p.cmd.Env, p.cmd.Stderr = asProgram, append(os.Environ(), env...), p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	for end := time.Now().Add(long); ; time.Sleep(5 * time.Millisecond) {
		if p.Client, err = control.Dial(t.Context(), path); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it does not answer: %v; it said %q", err, p.said)
		}
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v; it said %q", err, p.said)
		}
		p.Close()
		t.Logf("it said %q", p.said)
	})
	return p
}

// guest is the guest of a VM, at the VMM's end of its wire.
type guest struct {
	*process
	wire *netwire.Conn
	ca   string
}

func (p *process) bind(vm string, handover bool, spec netpolicy.Spec) *guest {
	p.t.Helper()
	ours, theirs, err := netwire.Pair()
	if err != nil {
		p.t.Fatal(err)
	}
	defer theirs.Close()
	bound, err := p.Bind(p.t.Context(), []control.Binding{{VM: vm, Spec: spec, Handover: handover, Wire: theirs}})
	if err == nil {
		err = bound[0].Error()
	}
	if err != nil {
		p.t.Fatalf("bind: %v; it said %q", err, p.said)
	}
	w, err := netwire.NewConn(ours)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { w.Close() })
	return &guest{p, w, bound[0].CA}
}

func (g *guest) ask(protocol netwire.Protocol, to string) (net.Conn, error) {
	far, from := netip.MustParseAddrPort(to), netip.MustParseAddrPort("192.0.0.2:40000")
	if far.Addr().Is6() {
		from = netip.MustParseAddrPort("[fd66:6f72:6b64::2]:40000")
	}
	g.ids++
	id := g.ids
	m := netwire.Message{Kind: netwire.Open, ID: id, Flow: netwire.Flow{Protocol: protocol, Guest: from, Far: far}}
	if err := g.wire.Send(m); err != nil {
		return nil, err
	}
	m, f, err := g.wire.Receive(true)
	for err == nil && (m.Kind == netwire.Finished || m.Kind == netwire.Broken) { // of an earlier request
		m, f, err = g.wire.Receive(true)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; it said %q", err, g.said)
	}
	if f == nil {
		return nil, errors.New(m.Reason.String())
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err == nil {
		c.SetDeadline(time.Now().Add(long))
		g.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// echoes sends bytes and expects them back.
func (g *guest) echoes(protocol netwire.Protocol, to string, n int) {
	g.t.Helper()
	c, err := g.ask(protocol, to)
	if err != nil {
		g.t.Errorf("%s %s: %v", protocol, to, err)
		return
	}
	b := bytes.Repeat([]byte{netwire.PacketData}, n)
	go c.Write(b)
	if back := make([]byte, n); protocol == netwire.TCP {
		_, err = io.ReadFull(c, back)
	} else {
		_, err = c.Read(back)
	}
	if err != nil {
		g.t.Errorf("%s %s: %v; it said %q", protocol, to, err, g.said)
	}
	c.Close()
}

func (g *guest) resolve(name string) (addrs []string) {
	g.t.Helper()
	c, err := g.ask(netwire.UDP, "192.0.0.1:53")
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}}}
	b, err := q.Pack()
	if err != nil {
		g.t.Fatal(err)
	}
	c.Write(append([]byte{netwire.PacketData}, b...))
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		g.t.Fatalf("%v; it said %q", err, g.said)
	}
	var m dnsmessage.Message
	if err := m.Unpack(buf[1:n]); err != nil {
		g.t.Fatal(err)
	}
	for _, r := range m.Answers {
		if a, is := r.Body.(*dnsmessage.AResource); is {
			addrs = append(addrs, netip.AddrFrom4(a.A).String())
		}
	}
	return addrs
}

// The complete program does all of its work in its sandbox, for each path of a flow.
func TestAllOfItsWorkIsDoneInTheSandbox(t *testing.T) {
	inter := nettest.New(t)
	resolvConf, _ := inter.DNS(t, nettest.Zones{
		"example.com": {netip.MustParseAddr("93.184.216.34")}, "other.example.net": {netip.MustParseAddr("93.184.216.35")},
	})
	inter.Echo(t, "93.184.216.34:7000")
	inter.Echo(t, "[2606:2800:220:1:248:1893:25c8:1946]:7000")
	server := inter.HTTP(t, "93.184.216.34:443", true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "authorization: "+r.Header.Get("Authorization"))
	}))
	roots := filepath.Join(t.TempDir(), "roots.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(roots, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0); err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{"SSL_CERT_FILE=" + roots}, "--resolv-conf", resolvConf)
	public := netpolicy.Spec{Default: netpolicy.Public}
	for vm, handover := range map[string]bool{"handed": true, "relayed": false} {
		g := p.bind(vm, handover, public)
		g.echoes(netwire.TCP, "93.184.216.34:7000", 1<<20)
		g.echoes(netwire.TCP, "[2606:2800:220:1:248:1893:25c8:1946]:7000", 1<<16)
		g.echoes(netwire.UDP, "93.184.216.34:7000", 100)
		if _, err := g.ask(netwire.TCP, "127.0.0.1:1"); err == nil || err.Error() != netwire.Prohibited.String() {
			t.Errorf("loopback: %v", err)
		}
		if _, err := g.ask(netwire.TCP, "93.184.216.35:9"); err == nil || err.Error() != netwire.Reset.String() {
			t.Errorf("a closed port: %v", err)
		}
		c, err := g.ask(netwire.Echo, "93.184.216.34:0")
		if err != nil {
			t.Fatalf("an echo request: %v", err)
		}
		c.Write([]byte{netwire.PacketData, 8, 0, 0, 0, 0x9c, 0x40, 0, 1, 'a', 'b'})
		if _, err := c.Read(make([]byte, 100)); err != nil {
			t.Errorf("its answer: %v", err)
		}
	}
	slow := p.bind("slow", true, netpolicy.Spec{Default: netpolicy.Public, Limits: netpolicy.Limits{BytesPerSecond: 100_000_000}})
	slow.echoes(netwire.TCP, "93.184.216.34:7000", 1<<16)
	p.withSecret()
	p.allowedByName(resolvConf)
	p.cutsAndLogs()
	p.isConfined()
}

// allowedByName resolves a name, and again after another file has replaced resolv.conf.
func (p *process) allowedByName(resolvConf string) {
	t := p.t
	t.Helper()
	g := p.bind("named", true, netpolicy.Spec{Allow: []string{"example.com"}})
	if got := g.resolve("example.com"); len(got) != 1 {
		t.Fatalf("example.com is %q", got)
	}
	g.echoes(netwire.TCP, "93.184.216.34:7000", 10)
	if err := os.WriteFile(resolvConf+".new", []byte("nameserver 151.101.2.132\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(resolvConf+".new", resolvConf); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(long); len(p.bind(fmt.Sprint("new", p.ids), true, g.spec()).resolve("example.com")) != 0; {
		if time.Now().After(end) {
			t.Fatal("the resolver of the first resolv.conf is asked still")
		}
	}
}

func (g *guest) spec() netpolicy.Spec { return netpolicy.Spec{Allow: []string{"example.com"}} }

// withSecret makes a CA and checks the injection of a header. The host is verified by the system's
// certificates.
func (p *process) withSecret() {
	t := p.t
	t.Helper()
	g := p.bind("secret", true, netpolicy.Spec{
		Allow:   []string{"example.com"},
		Headers: []netpolicy.HeaderRule{{Host: "example.com", Headers: map[string]string{"Authorization": "Bearer s3cret"}}},
	})
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM([]byte(g.ca)) {
		t.Fatalf("the CA is %q", g.ca)
	}
	client := &http.Client{Timeout: long, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true, DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return g.ask(netwire.TCP, "93.184.216.34:443")
		},
	}}
	r, err := client.Get("https://example.com/")
	if err != nil {
		why, _ := p.Refusals(t.Context(), "secret")
		t.Fatalf("%v; it refused %+v", err, why)
	}
	defer r.Body.Close()
	if b, err := io.ReadAll(r.Body); string(b) != "authorization: Bearer s3cret" {
		t.Errorf("it answers %q, %v", b, err)
	}
}

// cutsAndLogs tests a policy change with an open flow, a new address of the host, a full log, and a
// long message.
func (p *process) cutsAndLogs() {
	t := p.t
	t.Helper()
	g := p.bind("cut", true, netpolicy.Spec{Default: netpolicy.Public})
	c, err := g.ask(netwire.TCP, "93.184.216.34:7000")
	if err != nil {
		t.Fatal(err)
	}
	own := &netlink.Addr{IPNet: &net.IPNet{IP: net.IP{203, 0, 113, 7}, Mask: net.CIDRMask(32, 32)}}
	wan, err := netlink.LinkByName("wan")
	if err == nil {
		err = netlink.AddrAdd(wan, own)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer netlink.AddrDel(wan, own)
	for end := time.Now().Add(long); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(p.dir, "audit.log.1")); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("its log is not renamed; it said %q", p.said)
		}
		g.echoes(netwire.TCP, "93.184.216.34:7000", 1)
	}
	if _, err := p.Update(t.Context(), "cut", netpolicy.Spec{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the policy has changed: %v", err)
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("host-%d.example.com", i))
	}
	if _, err := p.Update(t.Context(), "cut", netpolicy.Spec{Allow: many}); err != nil {
		t.Fatal(err)
	}
	if st, err := p.Stats(t.Context()); err != nil || st.VMs == 0 || st.AuditLost != 0 {
		t.Errorf("its counts are %+v, %v", st, err)
	}
	if text := p.said.String(); strings.Contains(text, "follow the host's") || strings.Contains(text, "does not answer") {
		t.Errorf("it said %q", text)
	}
}

// isConfined checks all threads of the process and of its reader.
func (p *process) isConfined() {
	t := p.t
	t.Helper()
	needsSandbox(t)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.cmd.Process.Pid))
	all := append([]string{fmt.Sprint(p.cmd.Process.Pid)}, strings.Fields(string(children))...)
	if err != nil {
		t.Logf("its reader is not looked at: %v", err) // the kernel lacks CONFIG_PROC_CHILDREN
	}
	for _, pid := range all {
		tasks, err := filepath.Glob("/proc/" + pid + "/task/*/status")
		if err != nil || len(tasks) == 0 {
			t.Fatalf("threads of %s: %v, %v", pid, tasks, err)
		}
		for _, task := range tasks {
			b, err := os.ReadFile(task)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue // the thread has ended
			}
			for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000"} {
				if err != nil || !strings.Contains(string(b), want) {
					t.Errorf("%s has no %q: %v", task, want, err)
				}
			}
		}
	}
	if text := p.said.String(); !strings.Contains(text, "sandbox: no capabilities, landlock") {
		t.Errorf("it said %q", text)
	}
}

func TestWithoutItsSandbox(t *testing.T) {
	inter := nettest.New(t)
	resolvConf, _ := inter.DNS(t, nettest.Zones{"example.com": {netip.MustParseAddr("93.184.216.34")}})
	p := start(t, nil, "--resolv-conf", resolvConf, "--sandbox", string(seccomp.Off))
	if got := p.bind("a", true, netpolicy.Spec{Allow: []string{"example.com"}}).resolve("example.com"); len(got) != 1 {
		t.Errorf("example.com is %q", got)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil || !strings.Contains(string(b), "Seccomp:\t0") || !strings.Contains(string(b), "CapEff:\t0000000000000000") {
		t.Errorf("%v: %s", err, b)
	}
}

// attempts are the actions of an attacker in control of forkd-net. deaths holds the attempts killed
// by the filter; every other attempt must fail with an error.
var (
	attempts = map[string]func(dir, host string) error{
		"a file of the host's":         func(_, host string) error { _, err := os.ReadFile(host); return err },
		"/etc/passwd":                  func(_, _ string) error { _, err := os.ReadFile("/etc/passwd"); return err },
		"a directory of the host's":    func(_, _ string) error { _, err := os.ReadDir("/etc"); return err },
		"what is beside its log":       func(dir, _ string) error { _, err := os.ReadFile(filepath.Join(dir, "secret")); return err },
		"its own /proc":                func(_, _ string) error { _, err := os.ReadFile("/proc/self/environ"); return err },
		"a file elsewhere":             func(_, host string) error { return os.WriteFile(host+".new", nil, 0o600) },
		"a file of the host's, opened": func(_, host string) error { _, err := os.OpenFile(host, os.O_WRONLY, 0); return err },
		"a move out of its directory": func(dir, host string) error {
			return os.Rename(filepath.Join(dir, "secret"), host+".moved")
		},
		"a TCP listener": func(_, _ string) error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err },
		"a UDP port":     func(_, _ string) error { _, err := net.ListenPacket("udp", "127.0.0.1:0"); return err },
	}
	deaths = map[string][]uintptr{
		"a Unix socket":      {unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC},
		"a Unix datagram":    {unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC},
		"a raw socket":       {unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP},
		"a packet socket":    {unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW | unix.SOCK_CLOEXEC},
		"netfilter":          {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER},
		"a vsock":            {unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM | unix.SOCK_CLOEXEC},
		"listening":          {unix.SYS_LISTEN},
		"a program":          {unix.SYS_EXECVE},
		"a program by fd":    {unix.SYS_EXECVEAT},
		"a process":          {unix.SYS_CLONE, uintptr(unix.SIGCHLD)},
		"a user namespace":   {unix.SYS_UNSHARE, unix.CLONE_NEWUSER},
		"tracing":            {unix.SYS_PTRACE},
		"another's memory":   {unix.SYS_PROCESS_VM_READV},
		"a signal":           {unix.SYS_KILL, 1, 0},
		"another's thread":   {unix.SYS_TGKILL, 1, 1, 0},
		"a handle":           {unix.SYS_PIDFD_OPEN, 1},
		"another's socket":   {unix.SYS_PIDFD_GETFD},
		"a mount":            {unix.SYS_MOUNT},
		"chroot":             {unix.SYS_CHROOT},
		"a program of BPF":   {unix.SYS_BPF},
		"io_uring":           {unix.SYS_IO_URING_SETUP},
		"keys":               {unix.SYS_KEYCTL},
		"userfaultfd":        {unix.SYS_USERFAULTFD},
		"perf":               {unix.SYS_PERF_EVENT_OPEN},
		"another user":       {unix.SYS_SETUID, 1},
		"memory that runs":   {unix.SYS_MMAP, 0, 4096, unix.PROT_EXEC, unix.MAP_PRIVATE | unix.MAP_ANON, ^uintptr(0)},
		"an ioctl":           {unix.SYS_IOCTL, 0, unix.TIOCSTI},
		"kTLS":               {unix.SYS_SETSOCKOPT, 0, unix.IPPROTO_TCP, unix.TCP_ULP},
		"more descriptors":   {unix.SYS_PRLIMIT64},
		"being traced again": {unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1},
		"a name of x32":      {0x40000000 | unix.SYS_READ},
	}
)

// attempt runs in a confined process. It makes one attempt.
func attempt(name, dir, host string) error {
	o := options{control: filepath.Join(dir, "control.sock"), log: filepath.Join(dir, "audit.log"), sandbox: string(seccomp.On)}
	if err := dropPrivileges(); err != nil {
		return err
	}
	if _, err := o.confine(o.files()); err != nil {
		return err
	}
	if try := attempts[name]; try != nil {
		if err := try(dir, host); err != nil {
			fmt.Println(err)
			return nil
		}
	} else if call := deaths[name]; call != nil {
		var a [7]uintptr
		copy(a[:], call)
		syscall.Syscall6(a[0], a[1], a[2], a[3], a[4], a[5], a[6])
	}
	return errors.New("it could")
}

// needsSandbox skips a test if the kernel lacks a feature of the sandbox.
func needsSandbox(t *testing.T) {
	t.Helper()
	_, err := landlock.Version()
	if err := errors.Join(err, seccomp.Available()); err != nil {
		t.Skip(err)
	}
}

func TestWhatItCannotDo(t *testing.T) {
	needsSandbox(t)
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(outside, []byte("x"), 0o644),
		os.WriteFile(filepath.Join(dir, "secret"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	try := func(t *testing.T, name string) (out string, err error) {
		t.Parallel()
		cmd := exec.Command("/proc/self/exe", name, dir, outside)
		cmd.Args[0] = asAttempt
		b, err := cmd.CombinedOutput()
		return string(b), err
	}
	for name := range attempts {
		t.Run(name, func(t *testing.T) {
			if out, err := try(t, name); err != nil || !strings.Contains(out, "permission denied") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	for name := range deaths {
		t.Run(name, func(t *testing.T) {
			out, err := try(t, name)
			var end *exec.ExitError
			if !errors.As(err, &end) || end.Sys().(syscall.WaitStatus).Signal() != unix.SIGSYS {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
