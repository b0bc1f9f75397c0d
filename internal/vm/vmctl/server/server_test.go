package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

const limit = vmctltest.Limit

var errTest = errors.New("the daemon does not want it")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testServer is a server in this process and a raw connection to it.
type testServer struct {
	*Server
	vm   *vmctltest.VM
	path string
}

// serve runs a server until the test ends.
func serve(t *testing.T, state vmm.State) *testServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "vmm")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "control.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	vm := vmctltest.New(state)
	s := &testServer{NewServer(l, vm), vm, path}
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.Serve()
	}()
	t.Cleanup(func() {
		l.Close()
		<-served
		vm.Close()
		os.RemoveAll(dir)
	})
	return s
}

// daemon is a connection with which the test plays the daemon.
type daemon struct {
	*wire.Conn
	c *net.UnixConn // the same connection
}

func (s *testServer) dial(t *testing.T) *daemon {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(limit))
	conn, err := wire.NewConn(c)
	if err != nil {
		t.Fatal(err)
	}
	return &daemon{conn, c}
}

// ask sends raw bytes and descriptors and returns the answer.
func (d *daemon) ask(t *testing.T, raw string, files int) (wire.Message, error) {
	t.Helper()
	var oob []byte
	if files > 0 {
		null := vmctltest.Open(t, os.DevNull)
		fds := make([]int, files)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := d.c.WriteMsgUnix([]byte(raw), oob, nil); err != nil {
		return wire.Message{}, err
	}
	m, got, err := d.Receive(make([]byte, wire.MaxMessage), wire.MaxFiles)
	unixfd.CloseAll(got)
	return m, err
}

// connected waits until the server has accepted the daemon.
func (s *testServer) connected(t *testing.T) {
	t.Helper()
	vmctltest.Soon(t, "the daemon to be connected", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.conn != nil
	})
}

// badRequests are well-formed messages with impossible requests.
var badRequests = []struct {
	name, raw string
	files     int
}{
	{"unknown operation", `{"id":1,"op":"dance"}`, 3},
	{"no operation", `{"id":1}`, 1},
	{"boot without a body", `{"id":1,"op":"boot"}`, 1},
	{"boot with a list for a body", `{"id":1,"op":"boot","body":[1,2]}`, 1},
	{"boot without descriptors", `{"id":1,"op":"boot","body":{"kernel":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 0},
	{"boot without a kernel", `{"id":1,"op":"boot","body":{"initrd":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 1},
	{"boot with too many descriptors", `{"id":1,"op":"boot","body":{"kernel":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 9},
	{"boot with more disks than descriptors", `{"id":1,"op":"boot","body":{"kernel":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","disks":[{"file":2},{"file":3},{"file":4}]}}`, 2},
	{"boot with one descriptor for two things", `{"id":1,"op":"boot","body":{"kernel":1,"initrd":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 1},
	{"boot with a negative descriptor", `{"id":1,"op":"boot","body":{"kernel":-1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 1},
	{"boot with a short generation ID", `{"id":1,"op":"boot","body":{"kernel":1,"gen_id":"AAAA","disks":[{"file":2}]}}`, 2},
	{"restore without descriptors", `{"id":1,"op":"restore","body":{"state":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 0},
	{"restore of fewer than no extents", `{"id":1,"op":"restore","body":{"state":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","memory":-1}}`, 1},
	{"restore of extents that overflow", `{"id":1,"op":"restore","body":{"state":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","memory":9223372036854775807}}`, 1},
	{"restore of an extent in a file that is not there", `{"id":1,"op":"restore","table":"AwAAAAAAAAAAAAAAAAAAAAAAAAAAEAAAAAAAAA==","body":{"state":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","memory":1}}`, 2},
	{"restore with a table in a file that is none", `{"id":1,"op":"restore","table_file":true,"body":{"state":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 2},
	{"save with one descriptor", `{"id":1,"op":"save","body":{"memory":1}}`, 1},
	{"save with a list for a body", `{"id":1,"op":"save","body":[1]}`, 2},
	{"save without the file of its digests", `{"id":1,"op":"save","body":{"memory":1,"state":2,"digest":3}}`, 2},
	{"capture without the file of its digests", `{"id":1,"op":"capture","body":{"memory":1,"state":2,"index":3,"digest":4}}`, 3},
	{"rebase without its file", `{"id":1,"op":"rebase","table":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAEAAAAAAAAA==","body":{"bases":[1]}}`, 0},
	{"a working set without its file", `{"id":1,"op":"write-working-set","body":{"file":1}}`, 0},
	{"a working set that is not named", `{"id":1,"op":"populate"}`, 1},
	{"boot with one descriptor for kernel and network", `{"id":1,"op":"boot","body":{"kernel":1,"net":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 1},
	{"restore without the file of its network", `{"id":1,"op":"restore","body":{"state":1,"net":2,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, 1},
	{"a network without its file", `{"id":1,"op":"net","body":{"file":1}}`, 0},
	{"a network that is not named", `{"id":1,"op":"net","body":{}}`, 1},
	{"a network of two files", `{"id":1,"op":"net","body":{"file":1}}`, 2},
}

func TestServerRefusesBadRequests(t *testing.T) {
	s := serve(t, vmm.StatePaused)
	c := s.dial(t)
	status, err := c.ask(t, `{"id":7,"op":"status"}`, 0)
	if err != nil || status.ID != 7 {
		t.Fatalf("status: %+v, %v", status, err)
	}
	files := vmctltest.OpenDescriptors()
	for _, r := range badRequests {
		m, err := c.ask(t, r.raw, r.files)
		if err != nil || m.ID != 1 || m.Error == nil {
			t.Errorf("%s: answer %+v, %v; want an error", r.name, m, err)
		}
		files += min(r.files, 1) // ours, open until the test's end
		deadline := time.Now().Add(limit)
		for vmctltest.OpenDescriptors() > files && time.Now().Before(deadline) { // it may answer before it closes them
			time.Sleep(time.Millisecond)
		}
		if now := vmctltest.OpenDescriptors(); now > files { // fewer: files of an earlier test are closed by now
			t.Fatalf("%s: %d descriptors more are open", r.name, now-files)
		}
	}
	if m, err := c.ask(t, `{"id":8,"op":"status"}`, 0); err != nil || m.ID != 8 || m.Error != nil {
		t.Errorf("status afterwards: %+v, %v", m, err)
	}
	if calls := s.vm.Calls(); len(calls) != 0 {
		t.Errorf("the VM was asked for %q", calls)
	}
}

// An invalid message costs the daemon its connection, and a running VM lives on.
func TestGarbageEndsTheConnectionOnly(t *testing.T) {
	s := serve(t, vmm.StateRunning)
	for _, raw := range []string{"", "garbage", "{", `{"id":"x"}`, `{"id":-1}`, "\x00\xff", strings.Repeat("[", 60_000), strings.Repeat("x", wire.MaxMessage+1)} {
		for _, files := range []int{0, 5} {
			name := raw[:min(len(raw), 10)]
			c := s.dial(t)
			if m, err := c.ask(t, raw, files); err == nil {
				t.Errorf("%q with %d descriptors was answered with %+v", name, files, m)
			}
			c.Close()
		}
	}
	files := vmctltest.OpenDescriptors()
	if m, err := s.dial(t).ask(t, `{"id":1,"op":"status"}`, 0); err != nil || m.Error != nil {
		t.Errorf("the next daemon: %+v, %v", m, err)
	}
	vmctltest.Soon(t, "descriptors to be closed", func() bool { return vmctltest.OpenDescriptors() <= files+2 })
}

// A daemon that does not answer delays the guest's dial at most until the dial's context or the
// daemon ends.
func TestDialHostUnanswered(t *testing.T) {
	s := serve(t, vmm.StateRunning)
	silent := s.dial(t)
	result := make(chan error, 1)
	s.connected(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, err := s.DialHost(ctx, 5)
		result <- err
	}()
	m, _, err := silent.Receive(make([]byte, wire.MaxMessage), wire.MaxFiles)
	if err != nil || m.Event != wire.EventDial {
		t.Fatalf("the daemon got %+v, %v", m, err)
	}
	cancel(errTest)
	if err := <-result; !errors.Is(err, errTest) {
		t.Errorf("got %v, want the context's cause", err)
	}
	// An answer that comes too late is closed, not kept.
	files := vmctltest.OpenDescriptors()
	null := vmctltest.Open(t, os.DevNull)
	if err := silent.Send(t.Context(), wire.Message{ID: m.ID, Op: wire.OpDialed}, null); err != nil {
		t.Fatal(err)
	}
	if st, err := silent.ask(t, `{"id":1,"op":"status"}`, 0); err != nil || st.ID != 1 {
		t.Fatalf("status: %+v, %v", st, err)
	}
	if now := vmctltest.OpenDescriptors(); now > files+1 { // fewer: files of an earlier test are closed by now
		t.Errorf("%d descriptors too many are open", now-files-1)
	}
	go func() {
		_, err := s.DialHost(context.Background(), 5)
		result <- err
	}()
	if _, _, err := silent.Receive(make([]byte, wire.MaxMessage), wire.MaxFiles); err != nil {
		t.Fatal(err)
	}
	silent.Close()
	if err := <-result; !errors.Is(err, vmm.ErrGone) {
		t.Errorf("got %v when the daemon went, want ErrGone", err)
	}
}

func TestLargeMessagesAreRefusedBeforeTheyAreSent(t *testing.T) {
	s := serve(t, vmm.StateRunning)
	c := s.dial(t)
	body, err := json.Marshal(strings.Repeat("x", wire.MaxMessage))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(t.Context(), wire.Message{ID: 1, Op: wire.OpStatus, Body: body}); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("got %v, want a refusal", err)
	}
	if m, err := c.ask(t, `{"id":2,"op":"status"}`, 0); err != nil || m.ID != 2 {
		t.Errorf("the connection afterwards: %+v, %v", m, err)
	}
}

// An abandoned dial stays counted until the daemon has answered it. Otherwise the daemon would end
// the VM for dialling too much.
func TestGivenUpDialsAreCounted(t *testing.T) {
	s := serve(t, vmm.StateRunning)
	silent := s.dial(t)
	s.connected(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	for range 4 * wire.MaxDials { // a send that need not wait does not check the context
		if _, err := s.DialHost(ctx, 5); !errors.Is(err, errTest) && !errors.Is(err, ErrDials) {
			t.Fatal(err)
		}
	}
	buf := make([]byte, wire.MaxMessage)
	silent.c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	asked := 0
	for {
		m, _, err := silent.Receive(buf, 0)
		if err != nil {
			break
		}
		if asked++; asked > wire.MaxDials {
			t.Fatalf("the daemon was asked for more than %d", wire.MaxDials)
		}
		if asked == 1 {
			if err := silent.Send(t.Context(), wire.Message{ID: m.ID, Op: wire.OpDialed, Error: wire.EncodeError(errTest)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	vmctltest.Soon(t, "room for one more", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.dials) < wire.MaxDials
	})
}

// FuzzServe gives the server any message with some descriptors. It answers or refuses, never
// panics, and keeps no descriptor except a booted VM's disks.
func FuzzServe(f *testing.F) {
	for _, r := range badRequests {
		f.Add([]byte(r.raw), uint8(r.files))
	}
	f.Add([]byte(`{"id":1,"op":"boot","body":{"kernel":1,"initrd":2,"cmdline":"q","cid":3,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","disks":[{"file":3,"read_only":true}]}}`), uint8(3))
	f.Add([]byte(`{"id":1,"op":"restore","table":"AgAAAAAAAAAAAAAAAAAAAAAAAAAAEAAAAAAAAA==","body":{"state":1,"gen_id":"AAAAAAAAAAAAAAAAAAAAAA==","memory":1}}`), uint8(2))
	f.Add([]byte(`{"id":1,"op":"dialed"}`), uint8(1))
	f.Fuzz(func(t *testing.T, raw []byte, n uint8) {
		var m wire.Message
		if json.Unmarshal(raw, &m) != nil {
			return
		}
		before := vmctltest.OpenDescriptors()
		var files []*os.File
		for range n % 8 {
			r, w, err := os.Pipe()
			if err != nil {
				t.Skip(err)
			}
			w.Close()
			files = append(files, r)
		}
		vm := vmctltest.New(vmm.StatePaused)
		s := NewServer(nil, vm)
		if m.Op == wire.OpDialed {
			s.finishDial(m, files)
		} else {
			s.serve(m, files)
		}
		vm.Close()
		if now := vmctltest.OpenDescriptors(); now != before {
			t.Fatalf("%d descriptors are open, before were %d", now, before)
		}
	})
}
