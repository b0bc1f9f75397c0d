package vmmctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testServer is a server in this process and a raw connection to it.
type testServer struct {
	*Server
	vm   *fakeVM
	path string
}

// serve runs a server until the test ends.
func serve(t *testing.T, state State) *testServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "vmm")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, ControlSocket)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	vm := &fakeVM{state: state, exit: make(chan Exit, 1)}
	s := &testServer{NewServer(l, vm), vm, path}
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.Serve()
	}()
	t.Cleanup(func() {
		l.Close()
		<-served
		closeDisks(vm.disks)
		os.RemoveAll(dir)
	})
	return s
}

// dial is a daemon that says what the test wants.
func (s *testServer) dial(t *testing.T) *conn {
	t.Helper()
	c, err := connect(filepath.Dir(s.path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.c.Close() })
	c.c.SetDeadline(time.Now().Add(limit))
	return c
}

// ask sends raw bytes and descriptors and returns the answer.
func (c *conn) ask(t *testing.T, raw string, files int) (message, error) {
	t.Helper()
	var oob []byte
	if files > 0 {
		null := open(t, os.DevNull)
		fds := make([]int, files)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.c.WriteMsgUnix([]byte(raw), oob, nil); err != nil {
		return message{}, err
	}
	m, got, err := c.receive(make([]byte, MaxMessage))
	closeAll(got)
	return m, err
}

// badRequests are well-formed messages that ask for what cannot be.
var badRequests = []struct {
	name, raw string
	files     int
}{
	{"unknown operation", `{"id":1,"op":"dance"}`, 3},
	{"no operation", `{"id":1}`, 1},
	{"boot without a body", `{"id":1,"op":"boot"}`, 1},
	{"boot with a list for a body", `{"id":1,"op":"boot","body":[1,2]}`, 1},
	{"boot without descriptors", `{"id":1,"op":"boot","body":{"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 0},
	{"boot with too many descriptors", `{"id":1,"op":"boot","body":{"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 9},
	{"boot with more disks than descriptors", `{"id":1,"op":"boot","body":{"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","disks":[{},{},{}]}}`, 2},
	{"boot with a short generation ID", `{"id":1,"op":"boot","body":{"gen_id":"AAAA","disks":[{}]}}`, 3},
	{"restore without descriptors", `{"id":1,"op":"restore","body":{"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 0},
	{"restore of fewer than no memory files", `{"id":1,"op":"restore","body":{"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","memory_files":-1}}`, 0},
	{"restore of memory files that overflow", `{"id":1,"op":"restore","body":{"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","memory_files":9223372036854775807}}`, 0},
	{"restore of a segment in a file that is not there", `{"id":1,"op":"restore","body":{"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","memory_files":1,"memory":[{"file":1}]}}`, 2},
	{"save with one descriptor", `{"id":1,"op":"save"}`, 1},
}

func TestServerRefusesBadRequests(t *testing.T) {
	s := serve(t, StatePaused)
	c := s.dial(t)
	status, err := c.ask(t, `{"id":7,"op":"status"}`, 0)
	if err != nil || status.ID != 7 {
		t.Fatalf("status: %+v, %v", status, err)
	}
	for _, r := range badRequests {
		files := openDescriptors()
		m, err := c.ask(t, r.raw, r.files)
		if err != nil || m.ID != 1 || m.Error == "" {
			t.Errorf("%s: answer %+v, %v; want an error", r.name, m, err)
		}
		null := min(r.files, 1) // ours, open until the test's end
		if now := openDescriptors(); now != files+null {
			t.Errorf("%s: %d descriptors more are open", r.name, now-files-null)
		}
	}
	if m, err := c.ask(t, `{"id":8,"op":"status"}`, 0); err != nil || m.ID != 8 || m.Error != "" {
		t.Errorf("status afterwards: %+v, %v", m, err)
	}
	if len(s.vm.calls) != 0 {
		t.Errorf("the VM was asked for %q", s.vm.calls)
	}
}

// What is no message at all costs the daemon its connection, and a VM that runs lives on.
func TestGarbageEndsTheConnectionOnly(t *testing.T) {
	s := serve(t, StateRunning)
	for _, raw := range []string{"", "garbage", "{", `{"id":"x"}`, `{"id":-1}`, "\x00\xff", strings.Repeat("[", 60_000), strings.Repeat("x", MaxMessage+1)} {
		for _, files := range []int{0, 5} {
			name := raw[:min(len(raw), 10)]
			c := s.dial(t)
			if m, err := c.ask(t, raw, files); err == nil {
				t.Errorf("%q with %d descriptors was answered with %+v", name, files, m)
			}
			c.c.Close()
		}
	}
	files := openDescriptors()
	if m, err := s.dial(t).ask(t, `{"id":1,"op":"status"}`, 0); err != nil || m.Error != "" {
		t.Errorf("the next daemon: %+v, %v", m, err)
	}
	soon(t, "descriptors to be closed", func() bool { return openDescriptors() <= files+2 })
}

// The guest's connections to the host.
func TestDialHost(t *testing.T) {
	a, b, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s := serve(t, StateRunning)
	if _, err := s.DialHost(t.Context(), 5); !errors.Is(err, ErrGone) {
		t.Errorf("without a daemon: %v, want ErrGone", err)
	}
	cn := s.dial(t)
	p := newProcess("", 0, 0, cn, func(port uint32) (*os.File, error) {
		if port == 5 {
			return b, nil
		}
		return nil, errTest
	})
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.readLoop(nil)
	}()
	soon(t, "the daemon to be connected", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.conn != nil
	})
	if _, err := s.DialHost(t.Context(), 6); err == nil || !strings.Contains(err.Error(), errTest.Error()) {
		t.Errorf("a port that the daemon refuses: %v", err)
	}
	c, err := s.DialHost(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "hello")
	c.Close()
	if got, err := io.ReadAll(a); err != nil || string(got) != "hello" {
		t.Errorf("the host got %q, %v", got, err)
	}
	p.Release()
	<-read
}

// A daemon that does not answer holds up the guest's dial no longer than its context, or than itself lives.
func TestDialHostUnanswered(t *testing.T) {
	s := serve(t, StateRunning)
	silent := s.dial(t)
	result := make(chan error, 1)
	soon(t, "the daemon to be connected", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.conn != nil
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, err := s.DialHost(ctx, 5)
		result <- err
	}()
	m, _, err := silent.receive(make([]byte, MaxMessage))
	if err != nil || m.Event != eventDial {
		t.Fatalf("the daemon got %+v, %v", m, err)
	}
	cancel(errTest)
	if err := <-result; !errors.Is(err, errTest) {
		t.Errorf("got %v, want the context's cause", err)
	}
	// An answer that comes too late is closed, not kept.
	files := openDescriptors()
	null := open(t, os.DevNull)
	if err := silent.send(message{ID: m.ID, Op: opDialed}, null); err != nil {
		t.Fatal(err)
	}
	if st, err := silent.ask(t, `{"id":1,"op":"status"}`, 0); err != nil || st.ID != 1 {
		t.Fatalf("status: %+v, %v", st, err)
	}
	if now := openDescriptors(); now != files+1 {
		t.Errorf("%d descriptors too many are open", now-files-1)
	}
	go func() {
		_, err := s.DialHost(context.Background(), 5)
		result <- err
	}()
	if _, _, err := silent.receive(make([]byte, MaxMessage)); err != nil {
		t.Fatal(err)
	}
	silent.c.Close()
	if err := <-result; !errors.Is(err, ErrGone) {
		t.Errorf("got %v when the daemon went, want ErrGone", err)
	}
}

func socketPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b"), nil
}

func TestLargeMessagesAreRefusedBeforeTheyAreSent(t *testing.T) {
	s := serve(t, StateRunning)
	c := s.dial(t)
	body, err := json.Marshal(strings.Repeat("x", MaxMessage))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.send(message{ID: 1, Op: opStatus, Body: body}); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("got %v, want a refusal", err)
	}
	if m, err := c.ask(t, `{"id":2,"op":"status"}`, 0); err != nil || m.ID != 2 {
		t.Errorf("the connection afterwards: %+v, %v", m, err)
	}
}

// FuzzServe gives the server any message with some descriptors: it answers or
// refuses, panics never, and keeps no descriptor but a booted VM's disks.
func FuzzServe(f *testing.F) {
	for _, r := range badRequests {
		f.Add([]byte(r.raw), uint8(r.files))
	}
	f.Add([]byte(`{"id":1,"op":"boot","body":{"cmdline":"q","cid":3,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","disks":[{"read_only":true}]}}`), uint8(3))
	f.Add([]byte(`{"id":1,"op":"restore","body":{"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","memory_files":1,"memory":[{"file":0,"length":4096},{"file":-7}]}}`), uint8(2))
	f.Add([]byte(`{"id":1,"op":"dialed"}`), uint8(1))
	f.Fuzz(func(t *testing.T, raw []byte, n uint8) {
		var m message
		if json.Unmarshal(raw, &m) != nil {
			return
		}
		before := openDescriptors()
		var files []*os.File
		for range n % 8 {
			r, w, err := os.Pipe()
			if err != nil {
				t.Skip(err)
			}
			w.Close()
			files = append(files, r)
		}
		vm := &fakeVM{state: StatePaused, exit: make(chan Exit, 1)}
		s := NewServer(nil, vm)
		if m.Op == opDialed {
			s.finishDial(m, files)
		} else {
			s.serve(m, files)
		}
		closeDisks(vm.disks)
		if now := openDescriptors(); now != before {
			t.Fatalf("%d descriptors are open, before were %d", now, before)
		}
	})
}
