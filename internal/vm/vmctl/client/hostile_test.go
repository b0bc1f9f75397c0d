package client

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
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/vmctl/server"
	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Behaviours of a VMM taken over by its guest, once it is ready. Most of them end it; the others
// belong to a VMM that does not read.
const (
	readNothing = iota
	dialAndReadNothing
	dialWithoutEnd
	answerUnasked
	sendDescriptors
	beReadyTwice
	endTwice
	sendUnknownEvent
	sendNoJSON
	sendTooMuch
	sendBadDial
	hangUp
	floodFrom // this value and above: flood the daemon with the message of floods at that index
)

// hostileMain is the process of such a VMM.
func hostileMain(l *net.UnixListener, how int) int {
	c, err := l.AcceptUnix()
	if err != nil {
		return 2
	}
	say := func(text string, files ...*os.File) error {
		var oob []byte
		for _, f := range files {
			oob = append(oob, unix.UnixRights(int(f.Fd()))...)
		}
		_, _, err := c.WriteMsgUnix([]byte(text), oob, nil)
		return err
	}
	say(`{"event":"ready"}`)
	if how >= floodFrom {
		return flood(c, floods[how-floodFrom], say)
	}
	switch how {
	case dialAndReadNothing:
		for i := range wire.MaxDials {
			say(fmt.Sprintf(`{"id":%d,"event":"dial","body":{"port":1022}}`, i+1))
		}
	case dialWithoutEnd:
		for i := 1; say(fmt.Sprintf(`{"id":%d,"event":"dial","body":{"port":%d}}`, i, i)) == nil; i++ {
		}
	case answerUnasked:
		say(`{"id":4711}`)
	case sendDescriptors:
		say(`{"id":1,"event":"dial","body":{"port":1}}`, os.Stdin)
	case beReadyTwice:
		say(`{"event":"ready"}`)
	case endTwice:
		say(`{"event":"exit","body":{"kind":"poweroff","reason":"first \u001b[2J"}}`)
		say(`{"event":"exit","body":{"kind":"poweroff","reason":"second"}}`)
	case sendUnknownEvent:
		say(`{"event":"dance"}`)
	case sendNoJSON:
		say("\x00\xff")
	case sendTooMuch:
		say(`{"event":"` + strings.Repeat("x", wire.MaxAnswer) + `"}`)
	case sendBadDial:
		say(`{"id":1,"event":"dial","body":{"port":-1}}`)
	case hangUp:
		c.Read(make([]byte, 1)) // until the first request
		c.Close()
	}
	time.Sleep(time.Hour)
	return 0
}

func spawnHostile(t *testing.T, how int, dial HostDialer) *Process {
	t.Helper()
	p, err := spawnShape(t, vmspec.Shape{MemoryMiB: 64 + how, VCPUs: beHostile}, dial)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func refuse(uint32) (*os.File, error) { return nil, errTest }

// A VMM that breaks the protocol is ended immediately, with the reason.
func TestAVMMThatBreaksTheProtocolIsEnded(t *testing.T) {
	for _, c := range []struct {
		name string
		how  int
		says string
	}{
		{"dials without end", dialWithoutEnd, "more than 128 dials"},
		{"answers what nobody asked", answerUnasked, "without a request"},
		{"sends descriptors", sendDescriptors, "descriptors"},
		{"is ready twice", beReadyTwice, "ready already"},
		{"ends twice", endTwice, "first \uFFFD[2J"},
		{"sends an unknown event", sendUnknownEvent, `"dance"`},
		{"sends no JSON", sendNoJSON, "bad control message"},
		{"sends a message that is too large", sendTooMuch, "more than 4096 bytes"},
		{"dials a port that is none", sendBadDial, "broke the control protocol"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := vmctltest.OpenDescriptors()
			// It breaks the protocol as soon as it is ready, possibly before Spawn returns.
			p, err := spawnShape(t, vmspec.Shape{MemoryMiB: 64 + c.how, VCPUs: beHostile}, refuse)
			reason := fmt.Sprint(err)
			if err == nil {
				waitDone(t, p)
				if _, err := p.Status(t.Context()); !errors.Is(err, vmm.ErrGone) {
					t.Errorf("status: %v, want ErrGone", err)
				}
				reason = p.Exit().Reason
			}
			if !strings.Contains(reason, c.says) {
				t.Errorf("it ended because %q, want %q", reason, c.says)
			}
			// One more is the /dev/null that stands for KVM.
			vmctltest.Soon(t, "the descriptors to be closed", func() bool { return vmctltest.OpenDescriptors() <= files+1 })
		})
	}
}

// A VMM that closes its control socket and lives on is ended too, because its VM is unreachable.
func TestAVMMThatHangsUpIsEnded(t *testing.T) {
	p := spawnHostile(t, hangUp, nil)
	p.mu.Lock()
	p.lonely = 50 * time.Millisecond
	p.mu.Unlock()
	if _, err := p.Status(t.Context()); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("status: %v, want ErrGone", err)
	}
	waitDone(t, p)
	if e := p.Exit(); !strings.Contains(e.Reason, "closed its control socket") {
		t.Errorf("exit is %+v", e)
	}
}

// Every call to a VMM that never reads ends with its context. When its socket has been full for
// long enough, the VMM is ended.
func TestAVMMThatNeverReads(t *testing.T) {
	for _, how := range []int{readNothing, dialAndReadNothing} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			p := spawnHostile(t, how, refuse)
			p.conn.SetLimit(2 * time.Second)
			var wg sync.WaitGroup
			began := time.Now()
			for range 1000 { // more than its socket takes
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					if err := p.Pause(ctx); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v, want the deadline", err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(began); took > limit/2 {
				t.Errorf("the calls took %s", took)
			}
			if err := p.Pause(context.Background()); !errors.Is(err, vmm.ErrGone) { // a caller that waits for ever
				t.Errorf("got %v, want ErrGone", err)
			}
			waitDone(t, p)
			if e := p.Exit(); !strings.Contains(e.Reason, "does not read its control socket") {
				t.Errorf("exit is %+v", e)
			}
		})
	}
}

// served is a server in this process.
type served struct {
	*server.Server
	vm *vmctltest.VM
}

// serve runs a server until the test ends, and returns its run directory.
func serve(t *testing.T) (s *served, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "vmm")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, ControlSocket), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	vm := vmctltest.New(vmm.StateRunning)
	s = &served{server.NewServer(l, vm), vm}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Serve()
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
		vm.Close()
		os.RemoveAll(dir)
	})
	return s, dir
}

// attach returns a daemon's end of a server in this process.
func attach(t *testing.T, dir string, dial HostDialer) *Process {
	t.Helper()
	c, err := connect(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := newProcess("", 0, 0, c, dial)
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.readLoop(nil)
	}()
	t.Cleanup(func() {
		p.Release() // so that the missing process is not ended
		<-read
		close(p.done)
	})
	if _, err := p.Status(t.Context()); err != nil { // when the server answers, it knows this daemon
		t.Fatal(err)
	}
	return p
}

func serveProcess(t *testing.T, dial HostDialer) (*served, *Process) {
	t.Helper()
	s, dir := serve(t)
	return s, attach(t, dir, dial)
}

// dialMany makes n concurrent dials from the guest's side.
func dialMany(t *testing.T, s *served, n int) (answered, refused int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	errs := make(chan error, n)
	for range n {
		go func() {
			_, err := s.DialHost(ctx, 5)
			errs <- err
		}()
	}
	for range n {
		switch err := <-errs; {
		case errors.Is(err, server.ErrDials):
			refused++
		case err != nil && strings.Contains(err.Error(), errTest.Error()):
			answered++
		default:
			t.Fatalf("a dial ended with %v", err)
		}
	}
	return answered, refused
}

// The guest dials while a capture is served: all dials are answered or refused before it ends, and
// calls are answered after it.
func TestDialsAreAnsweredDuringACapture(t *testing.T) {
	s, p := serveProcess(t, refuse)
	captures := s.vm.BlockCaptures()
	captured := make(chan error, 1)
	go func() {
		_, err := p.Capture(t.Context(), vmm.CaptureConfig{Memory: vmctltest.File(t, ""), State: vmctltest.File(t, ""), Index: vmctltest.File(t, "")})
		captured <- err
	}()
	<-captures
	answered, refused := dialMany(t, s, 1024)
	if answered < wire.MaxDials || answered+refused != 1024 {
		t.Errorf("%d dials were answered and %d refused", answered, refused)
	}
	status := make(chan error, 1)
	go func() {
		_, err := p.Status(t.Context())
		status <- err
	}()
	captures <- struct{}{}
	for what, c := range map[string]chan error{"capture": captured, "status": status} {
		if err := <-c; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// More requests than may wait are refused while a capture is served.
func TestTooManyRequestsAreRefused(t *testing.T) {
	s, p := serveProcess(t, refuse)
	captures := s.vm.BlockCaptures()
	go p.Capture(context.Background(), vmm.CaptureConfig{Memory: vmctltest.File(t, ""), State: vmctltest.File(t, ""), Index: vmctltest.File(t, "")})
	<-captures
	const maxRequests = 16 // package server's
	errs := make(chan error, 3*maxRequests)
	for range cap(errs) {
		go func() { errs <- p.Pause(context.Background()) }()
	}
	for range cap(errs) - maxRequests {
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "requests wait") {
			t.Errorf("got %v, want a refusal", err)
		}
	}
	captures <- struct{}{}
	for range maxRequests {
		<-errs
	}
}

// A slow dialer delays neither calls nor the reader.
func TestASlowDialerHoldsUpNoCall(t *testing.T) {
	open := make(chan struct{})
	s, p := serveProcess(t, func(uint32) (*os.File, error) {
		<-open
		return nil, errTest
	})
	dialed := make(chan int, 1)
	go func() {
		n, _ := dialMany(t, s, wire.MaxDials)
		dialed <- n
	}()
	vmctltest.Soon(t, "the dials to wait", func() bool {
		p.dials.mu.Lock()
		defer p.dials.mu.Unlock()
		return len(p.dials.waiting) == wire.MaxDials-1
	})
	for range 10 {
		if _, err := p.Status(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(open)
	if n := <-dialed; n != wire.MaxDials {
		t.Errorf("%d dials were answered, want all %d", n, wire.MaxDials)
	}
}

// The guest's connections to the host.
func TestDialHost(t *testing.T) {
	a, b, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s, dir := serve(t)
	if _, err := s.DialHost(t.Context(), 5); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("without a daemon: %v, want ErrGone", err)
	}
	attach(t, dir, func(port uint32) (*os.File, error) {
		if port == 5 {
			return b, nil
		}
		return nil, errTest
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
}

func socketPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b"), nil
}

// FuzzRead gives the daemon any message of a VMM: it is delivered or the VM is ended, and the
// daemon keeps no data of it.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`{"event":"ready"}`, `{"event":"dial","id":1,"body":{"port":1022}}`, `{"event":"exit","body":{"kind":"reset","reason":"x"}}`,
		`{"event":"disks","body":{"seq":1,"full":"no room","lost":"\u001b"}}`, `{"id":1,"body":{"version":2}}`, `{"id":2,"error":{"text":"no"}}`, `[]`, "", "{",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m wire.Message
		if json.Unmarshal(raw, &m) != nil {
			return
		}
		p := &Process{pending: map[uint64]chan wire.Message{1: make(chan wire.Message, 1)}}
		p.dials.answering = true // no goroutine takes one off the queue
		var spare chan<- error = make(chan error, 1)
		for range 2 * wire.MaxDials {
			if m.Event == wire.EventHealth { // paced: see TestAFloodFromAVMM
				m.Event = ""
				_ = p.health.heard(m)
				if h := p.health.health; len(h.Full)+len(h.Lost) > wire.MaxAnswer {
					t.Fatalf("it keeps %d bytes", len(h.Full)+len(h.Lost))
				}
			}
			if take(p, m, &spare) != nil {
				return
			}
		}
		t.Fatal("it can be said without end")
	})
}
