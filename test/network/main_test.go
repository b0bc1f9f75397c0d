package network

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/net/netd/nettest"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

func TestMain(m *testing.M) {
	nettest.MainOfDaemon(m, func(m *testing.M) int {
		code := m.Run()
		if err := theWorld.close(); err != nil {
			fmt.Fprintln(os.Stderr, "network: after all tests:", err)
			code = max(code, 1)
		}
		return code
	})
}

const (
	parentTag = "parent"
	prefix    = "net" // of the daemon's directory; short, because sockets are below it
)

//go:embed testdata/guest.py
var guestProgram string

// ceiling is the operator's ceiling: all public addresses except one.
const ceiling = "default: public\ndeny: [" + forbidden + "]\n"

// world is the shared state of the tests.
type world struct {
	*harness.Daemon
	once sync.Once
	err  error
	life *lifetime
	far  *far

	guest string // the sandbox of most tests
}

var theWorld world

// shared returns the daemon, and sets the policy of its sandbox to these rules.
func shared(t *testing.T, allow ...string) *world {
	t.Helper()
	kvmtest.Require(t)
	w := &theWorld
	w.once.Do(func() {
		w.err = errors.New("it failed in the test that came first") // open may end that test
		w.err = w.open(t)
	})
	if w.err != nil {
		t.Fatalf("start of the shared daemon: %v", w.err)
	}
	w.allow(t, w.guest, allow...)
	return w
}

func (w *world) open(t *testing.T) error {
	w.life = &lifetime{TB: t}
	w.far = newFar(w.life)
	dir, err := harness.TempDir(prefix)
	if err != nil {
		return err
	}
	d, err := harness.New(t, dir)
	if err != nil {
		return err
	}
	d.NoOracle = true // test/oracle runs these comparisons
	if err := errors.Join(d.WithNet(t), harness.PythonImage(t, d.Images())); err != nil {
		return err
	}
	file := filepath.Join(dir, "ceiling.yaml")
	if err := os.WriteFile(file, []byte(ceiling), 0o600); err != nil {
		return err
	}
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, w.far.pem(), 0o600); err != nil {
		return err
	}
	d.Flags = []string{"--net-ceiling", file, "--net-resolv-conf", w.far.resolvConf,
		"--net-ca", ca, "--net-tap", tapPrefix + "*", "--log-level", "debug", // debug logs when an identity was confirmed
		"--audit-log", filepath.Join(dir, "audit.log")}
	w.Daemon = d
	key := filepath.Join(dir, "secrets.key")
	w.cli(t, "secret", "generate-key", key)
	d.Flags = append(d.Flags, "--secrets-key", key)
	if err := d.Start(); err != nil {
		return err
	}
	return w.makeGuest(t)
}

// makeGuest makes the snapshot and the sandbox.
func (w *world) makeGuest(t *testing.T) error {
	_, err := w.Client.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: parentTag, Image: "python-numpy",
		Warm: fmt.Sprintf("certificate = %q\n%s", w.far.pem(), guestProgram)}, func(api.Step) {})
	if err != nil {
		return err
	}
	n := 1
	res, err := w.Client.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, GuestFork: true})
	if err != nil {
		return err
	}
	if failed := res.Failed(); len(failed) > 0 {
		return errors.New(failed[0].Error)
	}
	w.guest = res.Sandboxes[0].ID
	return nil
}

// close stops the daemon. It also stops forkd-net, which would outlive the daemon by a minute.
func (w *world) close() error {
	if w.Daemon == nil {
		return nil
	}
	defer os.RemoveAll(w.Dir)
	defer w.life.end()
	err := w.Finish()
	for _, pid := range w.NetProcesses() {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	for end := time.Now().Add(harness.Patience()); len(w.NetProcesses()) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.Join(err, errors.New("forkd-net does not end"))
		}
	}
	return err
}

// lifetime makes resources of the first test last until the end of all tests.
type lifetime struct {
	testing.TB
	ends []func()
}

func (l *lifetime) Cleanup(f func()) { l.ends = append(l.ends, f) }

func (l *lifetime) TempDir() string {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (l *lifetime) end() {
	for i := len(l.ends) - 1; i >= 0; i-- {
		l.ends[i]()
	}
}
