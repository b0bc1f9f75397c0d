package netproc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netproxy"
)

// TestMain also acts as forkd-net: the test starts its own binary as one.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "--control" {
		os.Exit(m.Run())
	}
	if slices.Contains(os.Args, "--broken") {
		fmt.Fprintln(os.Stderr, "out of luck")
		os.Exit(3)
	}
	l, err := control.Listen(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // in case a test leaves it behind
	defer cancel()
	_ = control.NewServer(l, &served{vms: map[string]control.Binding{}, stop: cancel}, func(error) {}).Serve(ctx)
}

// served holds the VMs of a forkd-net that only stores them.
type served struct {
	mu   sync.Mutex
	vms  map[string]control.Binding
	stop func()
}

func (s *served) Bind(b control.Binding, wire int) (control.Bound, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unix.Close(wire)
	if b.VM == "bad" {
		return control.Bound{}, errors.New("not this one")
	}
	s.vms[b.VM] = b
	return control.Bound{VM: b.VM, CA: "ca of " + b.VM}, nil
}

func (s *served) Update(vm string, _ netpolicy.Spec) (control.Bound, error) {
	return control.Bound{VM: vm, CA: "ca of " + vm}, nil
}

func (s *served) Release(vm string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, is := s.vms[vm]; !is {
		return control.ErrNotFound
	}
	delete(s.vms, vm)
	return nil
}

func (s *served) Traffic() (out []control.Traffic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.vms {
		out = append(out, control.Traffic{VM: name, In: 1, Out: 2, Limit: 3})
	}
	return out
}

func (s *served) List() (out []control.Listed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, b := range s.vms {
		out = append(out, control.Listed{VM: name, Sandbox: b.Sandbox, Connected: name != "hung-up"})
	}
	return out
}

func (s *served) Flows(vm string) ([]control.Flow, error) {
	return []control.Flow{{Protocol: "tcp", Name: vm, BytesIn: 7, BytesOut: 3}}, nil
}

func (s *served) Untold() control.Untold { return control.Untold{Lost: 7} }

func (s *served) Refusals(vm string) ([]control.Line, error) {
	return []control.Line{{VM: vm, Reason: "second"}, {VM: vm, Reason: "first"}}, nil
}

// Facts returns the facts that the VM was bound with.
func (s *served) Facts(vm string) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vms[vm].Facts, nil
}

func (s *served) Stats() control.Stats { return control.Stats{} }
func (s *served) Shutdown()            { go s.stop() }

func (s *served) Subscribe(vm string, send func(control.Line) error) (func(), error) {
	return func() {}, send(control.Line{VM: vm, Reason: "third"})
}

// bench returns a run directory. Its forkd-net ends with the test.
func bench(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "np") // short: a socket has to fit
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c, err := control.Dial(context.Background(), filepath.Join(dir, dirName, socketName))
		if err == nil {
			_ = shutDown(context.Background(), c)
		}
		os.RemoveAll(dir)
	})
	return Config{Binary: self, RunDir: dir}
}

func connect(t *testing.T, c Config) sandbox.NetPort {
	t.Helper()
	p, err := Connect(c)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func bind(t *testing.T, p sandbox.NetPort, names ...string) error {
	t.Helper()
	var all []sandbox.NetBinding
	for _, name := range names {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all = append(all, sandbox.NetBinding{VM: name, Sandbox: "sb", Wire: f})
	}
	_, err := p.Bind(t.Context(), all)
	return err
}

func list(t *testing.T, p sandbox.NetPort) []string {
	t.Helper()
	names, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestTheNextDaemonFindsTheProcessUnlessItsSettingsDiffer(t *testing.T) {
	c := bench(t)
	if u, err := Untold(t.Context(), c.RunDir); err == nil {
		t.Errorf("one that does not run has refused %+v", u)
	}
	first := connect(t, c)
	if err := bind(t, first, "a", "b"); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if u, err := Untold(t.Context(), c.RunDir); err != nil || u.Lost != 7 {
		t.Errorf("it has refused %+v, %v", u, err)
	}
	if names := list(t, connect(t, c)); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("it serves %q", names)
	}
	c.Ceiling = &netpolicy.Spec{Default: netpolicy.Public}
	p := connect(t, c)
	if names := list(t, p); len(names) != 0 {
		t.Errorf("one with other settings serves %q", names)
	}
	file := filepath.Join(c.RunDir, dirName, ceiling)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if spec, err := netpolicy.ParseFile(file, b); err != nil || spec.Default != netpolicy.Public {
		t.Errorf("its ceiling reads %+v, %v", spec, err)
	}
}

// It would enforce only the limits it knows.
func TestAProcessOfAnEarlierBuildIsReplaced(t *testing.T) {
	c := bench(t)
	first := connect(t, c)
	if err := bind(t, first, "a"); err != nil {
		t.Fatal(err)
	}
	first.Close()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := writePrivate(filepath.Join(c.RunDir, dirName, settings), b); err != nil {
		t.Fatal(err)
	}
	if names := list(t, connect(t, c)); len(names) != 0 {
		t.Errorf("it serves %q", names)
	}
}

func TestTheProxyIsInNobodysArguments(t *testing.T) {
	c := bench(t)
	connect(t, c).Close()
	c.Upstream = "socks5://me:geheim@proxy.example"
	p := connect(t, c)
	if err := bind(t, p, "a"); err != nil {
		t.Fatal(err)
	}
	args, err := c.args(filepath.Join(c.RunDir, dirName))
	if err != nil || strings.Contains(strings.Join(args, " "), "geheim") {
		t.Errorf("arguments %q: %v", args, err)
	}
	file := args[slices.Index(args, "--upstream-proxy-file")+1]
	if b, err := os.ReadFile(file); err != nil || string(b) != c.Upstream {
		t.Errorf("its file has %q: %v", b, err)
	}
	for _, path := range []string{file, filepath.Join(c.RunDir, dirName, settings)} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
	p.Close()
	if names := list(t, connect(t, c)); len(names) != 1 {
		t.Errorf("the same settings make another process: %q", names)
	}
}

func TestItsEndIsNoticedAndAnotherIsStarted(t *testing.T) {
	c := bench(t)
	p := connect(t, c)
	if err := p.(*port).Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("its end was not noticed")
	}
	if names := list(t, connect(t, c)); len(names) != 0 {
		t.Errorf("the next serves %q", names)
	}
}

func TestBindIsAllOrNone(t *testing.T) {
	p := connect(t, bench(t))
	if err := bind(t, p, "a", "bad", "b"); err == nil || !strings.Contains(err.Error(), "not this one") {
		t.Errorf("got %v", err)
	}
	if names := list(t, p); len(names) != 0 {
		t.Errorf("it serves %q", names)
	}
	if err := bind(t, p, "a", "hung-up"); err != nil {
		t.Fatal(err)
	}
	if names := list(t, p); !slices.Equal(names, []string{"a"}) { // the other is bound again
		t.Errorf("it serves %q", names)
	}
	for range 2 { // a second time is not an error
		if err := p.Release(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	}
}

func TestFactsGoThereAndCertificatesComeBack(t *testing.T) {
	p := connect(t, bench(t))
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	facts := []netpolicy.Exported{{Name: "example.org", Addr: netip.MustParseAddr("198.51.100.7"), Seconds: 60}}
	all := []sandbox.NetBinding{{VM: "a", Wire: f, Facts: facts}, {VM: "b", Wire: f, Facts: facts}, {VM: "c", Wire: f}}
	cas, err := p.Bind(t.Context(), all)
	if err != nil || !slices.Equal(cas, []string{"ca of a", "ca of b", "ca of c"}) {
		t.Fatalf("certificates %q, %v", cas, err)
	}
	if ca, err := p.Update(t.Context(), "b", netpolicy.Spec{}); err != nil || ca != "ca of b" {
		t.Errorf("certificate %q, %v", ca, err)
	}
	for _, b := range all {
		if got, err := p.Facts(t.Context(), b.VM); err != nil || !slices.Equal(got, b.Facts) {
			t.Errorf("%s: got %+v, %v, want %+v", b.VM, got, err, b.Facts)
		}
	}
}

func TestFlowsAndLog(t *testing.T) {
	p := connect(t, bench(t))
	if flows, err := p.Flows(t.Context(), "a"); err != nil || len(flows) != 1 || flows[0].Sent != 3 || flows[0].Received != 7 {
		t.Errorf("flows: %+v, %v", flows, err)
	}
	var said []string
	enough := errors.New("enough")
	err := p.Log(t.Context(), "a", true, func(line []byte) error {
		var l control.Line
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		if said = append(said, l.Reason); len(said) == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || !slices.Equal(said, []string{"first", "second", "third"}) {
		t.Errorf("log: %q, %v", said, err)
	}
}

func TestAProcessThatCannotBeStartedSaysWhy(t *testing.T) {
	c := bench(t)
	c.Args = []string{"--broken"}
	if _, err := Connect(c)(t.Context()); err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("got %v", err)
	}
	c.Binary = filepath.Join(c.RunDir, "nowhere")
	if _, err := Connect(c)(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// The reason for an end is still found when the next process already runs.
func TestWhyItEndedIsKept(t *testing.T) {
	c := bench(t)
	broken := c
	broken.Args = []string{"--broken"}
	if _, err := Connect(broken)(t.Context()); err == nil {
		t.Fatal("it is not broken")
	}
	connect(t, c)
	b, err := os.ReadFile(filepath.Join(c.RunDir, dirName, logName+".1"))
	if err != nil || !strings.Contains(string(b), "out of luck") || !strings.Contains(string(b), "has ended: exit status 3") {
		t.Errorf("%q, %v", b, err)
	}
}

// The seed of certificates is made once, for the daemon's user only.
func TestTheSeedIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	c := Config{SeedFile: path}
	var before []byte
	for range 2 {
		args, err := c.args(t.TempDir())
		if err != nil || !slices.Contains(args, path) {
			t.Fatalf("%q, %v", args, err)
		}
		b, err := os.ReadFile(path)
		if err != nil || len(b) != netproxy.SeedBytes || before != nil && !bytes.Equal(b, before) {
			t.Fatalf("%d bytes, %v; the same as before: %t", len(b), err, bytes.Equal(b, before))
		}
		before = b
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if _, err := (Config{SeedFile: filepath.Join(path, "below")}).args(t.TempDir()); err == nil {
		t.Error("a seed that cannot be kept is no error")
	}
}
