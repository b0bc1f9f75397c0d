package agent_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
)

// fakeSystem records an identity's changes to the kernel.
type fakeSystem struct {
	mu       sync.Mutex
	seeds    [][]byte
	wall     time.Time
	hostname string
	bootFile string
	wipes    int
	prepared int
	err      error
}

func (f *fakeSystem) AddEntropy(seed []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seeds = append(f.seeds, seed)
	return f.err
}

func (f *fakeSystem) SetClock(t time.Time) error {
	f.wall = t
	return f.err
}

func (f *fakeSystem) SetHostname(name string) error {
	f.hostname = name
	return f.err
}

func (f *fakeSystem) WipeOnFork(context.Context) (int, error) {
	f.wipes++
	return 3, f.err
}

func (f *fakeSystem) PrepareWipeOnFork(context.Context) error {
	f.prepared++
	return f.err
}

func (f *fakeSystem) BindBootID(file string) error {
	f.bootFile = file
	return f.err
}

// fakeLink is a network device. It records its addresses in order.
type fakeLink struct {
	macs []string
	err  error
}

func (f *fakeLink) SetMAC(mac net.HardwareAddr) error {
	f.macs = append(f.macs, mac.String())
	return f.err
}

type bench struct {
	*agentclient.Client
	agent *agent.Agent
	dial  agentclient.DialFunc
	// identity dials the identity port.
	identity agentclient.DialFunc
	sys      *fakeSystem
	root     string
}

// startAgent runs a whole agent on a Unix socket and returns a client of it.
func startAgent(t *testing.T, change ...func(*agent.Config)) *bench {
	t.Helper()
	before := openFiles(t)
	t.Cleanup(func() { wantNoLeak(t, before) }) // runs last
	b := &bench{sys: &fakeSystem{}, root: t.TempDir()}
	cfg := agent.Config{
		Version:   "test",
		ImageFile: filepath.Join(b.root, "image.json"),
		Root:      b.root,
		System:    b.sys,
		HooksDir:  "/hooks",
		Log:       t.Logf,

		IdentityPort: true,
	}
	for _, c := range change {
		c(&cfg)
	}
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.agent = a
	sock := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	identities, err := net.Listen("unix", sock+"i")
	if err != nil {
		t.Fatal(err)
	}
	evals, err := net.Listen("unix", sock+"e")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 3)
	go func() { served <- a.Serve(ctx, l) }()
	go func() { served <- a.ServeIdentity(ctx, identities) }()
	go func() { served <- a.ServeEvals(ctx, evals) }()
	to := func(path string) agentclient.DialFunc {
		return func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
	}
	b.dial, b.identity = to(sock), to(sock+"i")
	b.Client = agentclient.New(b.dial, agentclient.WithIdentityPort(b.identity), agentclient.WithEvalPort(to(sock+"e")))
	t.Cleanup(func() {
		b.Close()
		cancel()
		if err := errors.Join(<-served, <-served, <-served); err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// wantNoLeak waits, because HTTP connections and others close a moment later.
func wantNoLeak(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for openFiles(t) > before+pollerFiles {
		if time.Now().After(deadline) {
			t.Errorf("%d files were open, now %d", before, openFiles(t))
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// pollerFiles is the number of files that the runtime opens once and keeps.
const pollerFiles = 3
