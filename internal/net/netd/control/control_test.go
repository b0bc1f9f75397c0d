package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a handler that records its calls.
type fake struct {
	mu    sync.Mutex
	bound map[string]control.Binding
	wires map[string]int
	subs  []func(control.Line) error
	ended bool
}

func (f *fake) Bind(b control.Binding, wire int) (control.Bound, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.bound[b.VM]; there {
		unix.Close(wire)
		return control.Bound{}, fmt.Errorf("%w: %s", control.ErrExists, b.VM)
	}
	f.bound[b.VM], f.wires[b.VM] = b, wire
	return control.Bound{CA: "ca of " + b.Tag}, nil
}

func (f *fake) Update(vm string, spec netpolicy.Spec) (control.Bound, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, there := f.bound[vm]
	if !there {
		return control.Bound{}, control.ErrNotFound
	}
	b.Spec = spec
	f.bound[vm] = b
	return control.Bound{VM: vm}, nil
}

func (f *fake) Release(vm string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.bound[vm]; !there {
		return control.ErrNotFound
	}
	delete(f.bound, vm)
	return unix.Close(f.wires[vm])
}

func (f *fake) Traffic() (all []control.Traffic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, b := range f.bound {
		all = append(all, control.Traffic{VM: name, In: 1, Out: 2, Limit: b.Spec.Limits.BytesPerSecond})
	}
	return all
}

func (f *fake) List() (all []control.Listed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.bound {
		all = append(all, control.Listed{VM: b.VM, Sandbox: b.Sandbox, Spec: b.Spec})
	}
	return all
}

func (f *fake) Flows(vm string) ([]control.Flow, error) {
	return make([]control.Flow, 2000), nil // more than a packet can hold
}

func (f *fake) Refusals(vm string) ([]control.Line, error) {
	return []control.Line{{VM: vm, Verdict: control.Denied}}, nil
}

func (f *fake) Facts(string) (json.RawMessage, error) { return json.RawMessage(`{"a":1}`), nil }
func (f *fake) Stats() control.Stats                  { return control.Stats{Opened: 7} }

func (f *fake) Untold() control.Untold {
	return control.Untold{Lines: make([]control.Line, 2000), Lost: 3} // more than a packet can hold
}

func (f *fake) Subscribe(vm string, send func(control.Line) error) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subs = append(f.subs, send)
	return func() {}, nil
}

func (f *fake) Shutdown() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

func (f *fake) close() {
	for vm := range f.bound {
		unix.Close(f.wires[vm])
	}
}

func serve(t *testing.T) (*fake, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control.sock")
	l, err := control.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{bound: map[string]control.Binding{}, wires: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- control.NewServer(l, f, func(err error) { t.Log(err) }).Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		f.close()
	})
	return f, path
}

func dial(t *testing.T, path string) *control.Client {
	t.Helper()
	c, err := control.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func null(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestVMsAreBoundInBatchesAndReleased(t *testing.T) {
	_, path := serve(t)
	c := dial(t, path)
	var vms []control.Binding
	for i := range 150 {
		vms = append(vms, control.Binding{VM: fmt.Sprint("vm", i), Sandbox: "s", Tag: "t", Wire: null(t)})
	}
	bound, err := c.Bind(t.Context(), vms)
	if err != nil || len(bound) != 150 {
		t.Fatalf("%d are bound: %v", len(bound), err)
	}
	for i, b := range bound {
		if b.Error() != nil || b.VM != vms[i].VM || b.CA != "ca of t" {
			t.Fatalf("bound %+v", b)
		}
	}
	list, err := c.List(t.Context())
	if err != nil || len(list) != 150 {
		t.Fatalf("%d are listed: %v", len(list), err)
	}
	again, err := c.Bind(t.Context(), vms[:1])
	if err != nil || !errors.Is(again[0].Error(), control.ErrExists) {
		t.Errorf("bound twice: %v, %v", again, err)
	}
	if err := c.Release(t.Context(), "vm3"); err != nil {
		t.Error(err)
	}
	if err := c.Release(t.Context(), "vm3"); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("released twice: %v", err)
	}
}

func TestLongPoliciesAndAnswersPass(t *testing.T) {
	f, path := serve(t)
	c := dial(t, path)
	spec := netpolicy.Spec{}
	for i := range 10000 {
		spec.Allow = append(spec.Allow, fmt.Sprintf("host%d.example.com:443", i))
	}
	if _, err := c.Bind(t.Context(), []control.Binding{{VM: "a", Spec: spec, Wire: null(t)}}); err != nil {
		t.Fatal(err)
	}
	if got := f.List()[0].Spec.Allow; !slices.Equal(got, spec.Allow) {
		t.Errorf("%d rules came", len(got))
	}
	spec.Allow = spec.Allow[:9000]
	if _, err := c.Update(t.Context(), "a", spec); err != nil || len(f.List()[0].Spec.Allow) != 9000 {
		t.Errorf("update: %v", err)
	}
	if flows, err := c.Flows(t.Context(), "a"); err != nil || len(flows) != 2000 {
		t.Errorf("%d flows: %v", len(flows), err)
	}
	if u, err := c.Untold(t.Context()); err != nil || len(u.Lines) != 2000 || u.Lost != 3 {
		t.Errorf("%d lines, %d lost: %v", len(u.Lines), u.Lost, err)
	}
	if facts, err := c.Facts(t.Context(), "a"); err != nil || string(facts) != `{"a":1}` {
		t.Errorf("facts %s: %v", facts, err)
	}
}

func TestATreeIsARootAndARate(t *testing.T) {
	f, path := serve(t)
	c := dial(t, path)
	good := control.Tree{Name: "root", BytesPerSecond: 1 << 20}
	for _, bad := range []control.Tree{{Name: "root"}, {BytesPerSecond: 1}, {Name: "root", BytesPerSecond: -1},
		{Name: strings.Repeat("x", 200), BytesPerSecond: 1}} {
		_, err := c.Bind(t.Context(), []control.Binding{{VM: "a", Tree: bad, Wire: null(t)}})
		if !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%.20q with %d: %v", bad.Name, bad.BytesPerSecond, err)
		}
	}
	if _, err := c.Bind(t.Context(), []control.Binding{{VM: "a", Tree: good, Wire: null(t)}}); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := f.bound["a"].Tree; got != good {
		t.Errorf("%+v came", got)
	}
}

func TestManyAskAtOnce(t *testing.T) {
	_, path := serve(t)
	c := dial(t, path)
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			if s, err := c.Stats(t.Context()); err != nil || s.Opened != 7 {
				t.Errorf("stats %+v: %v", s, err)
			}
		})
	}
	wait.Wait()
}

func TestTheAuditIsFollowed(t *testing.T) {
	f, path := serve(t)
	c := dial(t, path)
	got := make(chan control.Line, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Follow(ctx, "", func(l control.Line) { got <- l }) }()
	var send func(control.Line) error
	for send == nil {
		f.mu.Lock()
		if len(f.subs) > 0 {
			send = f.subs[0]
		}
		f.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	if err := send(control.Line{VM: "a", Reason: "why"}); err != nil {
		t.Fatal(err)
	}
	if l := <-got; l.Reason != "why" {
		t.Errorf("line %+v", l)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestAnEndedConnectionFailsRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := control.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	f := &fake{bound: map[string]control.Binding{}, wires: map[string]int{}}
	go func() { done <- control.NewServer(l, f, func(error) {}).Serve(ctx) }()
	c := dial(t, path)
	cancel()
	<-done
	<-c.Done()
	if _, err := c.Stats(t.Context()); !errors.Is(err, control.ErrClosed) {
		t.Errorf("stats: %v", err)
	}
}

func TestTwoDoNotListenAtOneSocket(t *testing.T) {
	_, path := serve(t)
	if l, err := control.Listen(path); err == nil {
		l.Close()
		t.Error("both listen")
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", st, err)
	}
}

// rawDial returns a connection before its hello.
func rawDial(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := net.Dial("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c.(*net.UnixConn)
}

func TestHostileMessagesEndTheirConnectionAlone(t *testing.T) {
	const hello = `{"id":1,"op":"hello","body":{"version":1}}`
	for name, packets := range map[string][]string{
		"no JSON":                 {"hello"},
		"a long body from nobody": {hello, `{"id":2,"op":"bind","long":100}`},
		"an endless long body":    {hello, `{"id":2,"op":"bind","long":-1}`},
		"another version":         {`{"id":1,"op":"hello","body":{"version":9}}`},
		"too long a packet":       {hello, `{"op":"` + strings.Repeat("x", 70<<10) + `"}`},
		"a request before hello":  {`{"id":1,"op":"list"}`},
	} {
		t.Run(name, func(t *testing.T) {
			_, path := serve(t)
			good := dial(t, path)
			c := rawDial(t, path)
			for _, p := range packets {
				if _, err := c.Write([]byte(p)); err != nil {
					t.Fatal(err)
				}
			}
			buf := make([]byte, 1<<16)
			for n, err := 1, error(nil); n > 0 && err == nil; { // SEQPACKET returns 0 at the end
				if n, err = c.Read(buf); err != nil && !errors.Is(err, io.EOF) && errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal("the connection is not ended")
				}
			}
			if _, err := good.Stats(t.Context()); err != nil {
				t.Errorf("another connection: %v", err)
			}
		})
	}
}

func TestBadRequestsAreAnswered(t *testing.T) {
	_, path := serve(t)
	c := rawDial(t, path)
	buf := make([]byte, 1<<16)
	for _, r := range []string{
		`{"id":2,"op":"bind","body":{"vms":[{"vm":"a"}]}}`, // no wire
		`{"id":2,"op":"bind","body":{"vms":[]}}`,
		`{"id":2,"op":"bind"}`,
		`{"id":2,"op":"flows","body":[]}`,
		`{"id":2,"op":"fly"}`,
	} {
		if r != "" {
			c.Write([]byte(`{"id":1,"op":"hello","body":{"version":1}}`))
			c.Read(buf)
		}
		if _, err := c.Write([]byte(r)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(buf)
		if err != nil || !strings.Contains(string(buf[:n]), `"code":"invalid"`) {
			t.Errorf("%s is answered %s, %v", r, buf[:n], err)
		}
	}
}
