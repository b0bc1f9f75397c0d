package forkcall

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/generation"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// address is the guest's own address. It changes in a clone.
type address struct{ cid, asked atomic.Uint32 }

func (a *address) ContextID() (uint32, error) { a.asked.Add(1); return a.cid.Load(), nil }

// bench is a server and a host. The test plays the host by answering its connections.
type bench struct {
	t       *testing.T
	s       *Server
	at      *address
	socket  string
	conns   chan *hostConn
	mu      sync.Mutex
	refuse  error // error of dialing the host
	refused int   // number of refused dials
}

// hostConn is the host's end of one call, with the received data.
type hostConn struct {
	net.Conn
	r      *bufio.Reader
	req    forkwire.Request
	result []byte
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, at: &address{}, socket: filepath.Join(t.TempDir(), "s"), conns: make(chan *hostConn, 100)}
	b.at.cid.Store(7)
	b.s = New(Config{Guest: generation.New(b.at), Dial: b.dial, Patience: 300 * time.Millisecond, Log: t.Logf})
	l, err := Listen(b.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) fails(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = err
}

func (b *bench) dial(context.Context) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		b.refused++
		return nil, b.refuse
	}
	ours, theirs := net.Pipe()
	go func() {
		h := &hostConn{Conn: theirs, r: forkwire.NewReader(theirs)}
		var err error
		if h.req, h.result, err = forkwire.ReadRequest(h.r); err != nil {
			theirs.Close()
			return
		}
		b.conns <- h
	}()
	return ours, nil
}

// call makes a call as a program would. The answer comes later.
func (b *bench) call(req forkwire.Request, result string) (net.Conn, <-chan forkwire.Answer) {
	b.t.Helper()
	c, err := net.Dial("unix", b.socket)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	// A full server answers and closes before it reads.
	if err := forkwire.WriteRequest(c, req, []byte(result)); err != nil && !errors.Is(err, unix.EPIPE) {
		b.t.Fatal(err)
	}
	out := make(chan forkwire.Answer, 1)
	go func() {
		a, left, err := forkwire.ReadAnswer(forkwire.NewReader(c))
		if err != nil {
			a.Error = forkwire.Errorf("test", "%v", err)
		}
		if len(left) > 0 && a.Ended != nil {
			a.Ended.Reason = string(left) // the tests look for it there
		}
		out <- a
	}()
	return c, out
}

func wantError(t *testing.T, a forkwire.Answer, code forkwire.Code, words string) {
	t.Helper()
	if a.Error == nil || a.Error.Code != code || !strings.Contains(a.Error.Message, words) {
		t.Errorf("got %+v, %v, want %s: %s", a, a.Error, code, words)
	}
}

var fork3 = forkwire.Request{Op: forkwire.OpFork, N: 3}

func TestTheOriginalIsAnsweredByTheHost(t *testing.T) {
	b := newBench(t)
	_, got := b.call(forkwire.Request{Op: forkwire.OpFork, N: 3, Token: "chosen by the caller", Again: true}, "")
	h := <-b.conns
	if h.req.N != 3 || h.req.CheckFromAgent() != nil || h.req.Again {
		t.Errorf("the host was asked %+v", h.req)
	}
	if err := forkwire.WriteAnswer(h, forkwire.Answer{Children: []forkwire.Child{{Index: 1, ID: "c1"}}}, nil); err != nil {
		t.Fatal(err)
	}
	if a := <-got; a.Error != nil || a.Index != 0 || len(a.Children) != 1 {
		t.Errorf("got %+v", a)
	}
}

// become does to the server what cloning does: another address, broken connections, an identity.
func (b *bench) become(id Identity, broken ...*hostConn) {
	b.at.cid.Add(1)
	before := b.at.asked.Load()
	for _, h := range broken {
		h.Close()
	}
	// When its connection breaks, a call checks whether it is in a clone.
	b.eventually("calls to notice that their connections broke", func() bool { return int(b.at.asked.Load()-before) >= len(broken) })
	b.s.Became(id)
}

func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func TestInAClone(t *testing.T) {
	for _, early := range []bool{false, true} {
		b := newBench(t)
		_, mine := b.call(fork3, "")
		h1 := <-b.conns
		_, other := b.call(fork3, "")
		h2 := <-b.conns
		_, wait := b.call(forkwire.Request{Op: forkwire.OpWait}, "")
		h3 := <-b.conns
		id := Identity{Token: h1.req.Token, Index: 2, ID: "sb-2", Parent: "gf"}
		if early { // the identity comes before the agent sees the broken connections
			b.become(id)
		} else {
			b.become(id, h1, h2, h3)
		}
		if a := <-mine; a.Error != nil || a.Index != 2 || a.ID != "sb-2" || a.Parent != "gf" {
			t.Errorf("the caller of this fork got %+v", a)
		}
		wantError(t, <-other, forkwire.Interrupted, "nothing was done for this one")
		wantError(t, <-wait, forkwire.NoChildren, "not its own")
		if len(b.conns) != 0 {
			t.Error("the host was asked again in the clone's name")
		}
		h1.Close()
		h2.Close()
		h3.Close()
	}
}

func TestACloneOfSomethingElse(t *testing.T) {
	b := newBench(t)
	_, got := b.call(fork3, "")
	b.become(Identity{Index: 1, ID: "sb-1"}, <-b.conns)
	wantError(t, <-got, forkwire.Interrupted, "that machine's")
}

// A call that begins in the clone before its identity belongs to the clone. A repeated identity has
// no effect.
func TestTheClonesOwnCalls(t *testing.T) {
	b := newBench(t)
	b.at.cid.Add(1)
	b.fails(errors.New("not listed yet"))
	_, got := b.call(fork3, "")
	b.eventually("the host to refuse the call", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.refused > 0
	})
	b.s.Became(Identity{Index: 1, ID: "sb-1"})
	b.fails(nil)
	h := <-b.conns
	b.s.Became(Identity{Index: 1, ID: "sb-1"})
	if h.req.Again {
		t.Error("a request that was never sent is sent again")
	}
	_ = forkwire.WriteAnswer(h, forkwire.Answer{Children: []forkwire.Child{{Index: 1, ID: "c1"}}}, nil)
	if a := <-got; a.Error != nil || len(a.Children) != 1 {
		t.Errorf("got %+v", a)
	}
}

func TestALostAnswerIsAskedForAgain(t *testing.T) {
	b := newBench(t)
	_, got := b.call(fork3, "")
	first := <-b.conns
	first.Close()
	second := <-b.conns
	if second.req.Token != first.req.Token || !second.req.Again {
		t.Errorf("asked %+v, then %+v", first.req, second.req)
	}
	_ = forkwire.WriteAnswer(second, forkwire.Answer{Children: []forkwire.Child{{Index: 1, ID: "c1"}}}, nil)
	if a := <-got; a.Error != nil {
		t.Errorf("got %+v", a)
	}
}

func TestAHostThatDoesNotAnswer(t *testing.T) {
	b := newBench(t)
	b.fails(errors.New("connection reset"))
	_, got := b.call(fork3, "")
	wantError(t, <-got, forkwire.Unavailable, "nothing was done")
	b.fails(nil)
	_, got = b.call(fork3, "")
	h := <-b.conns
	b.fails(errors.New("connection reset"))
	h.Close()
	wantError(t, <-got, forkwire.Lost, "does not say")
}

// The host forgets a child's end only when the caller has it.
func TestAnEndIsConfirmed(t *testing.T) {
	ended := forkwire.Answer{Ended: &forkwire.Ended{ID: "c1", Index: 1, Status: forkwire.Exited}}
	t.Run("collected", func(t *testing.T) {
		b := newBench(t)
		c, got := b.call(forkwire.Request{Op: forkwire.OpWait, IDs: []string{"c1"}}, "")
		h := <-b.conns
		_ = forkwire.WriteAnswer(h, ended, []byte("the result"))
		if a := <-got; a.Ended == nil || a.Ended.Reason != "the result" {
			t.Fatalf("got %+v", a)
		}
		if _, err := c.Write([]byte{forkwire.Collected}); err != nil {
			t.Fatal(err)
		}
		if w, err := h.r.ReadByte(); err != nil || w != forkwire.Collected {
			t.Errorf("the host was told %q, %v", w, err)
		}
		h.Close()
	})
	t.Run("the caller left", func(t *testing.T) {
		b := newBench(t)
		c, got := b.call(forkwire.Request{Op: forkwire.OpWait}, "")
		h := <-b.conns
		_ = forkwire.WriteAnswer(h, ended, []byte("the result"))
		<-got
		c.Close()
		if w, err := h.r.ReadByte(); err != io.EOF {
			t.Errorf("the host was told %q, %v", w, err)
		}
	})
	t.Run("the caller left while it waited", func(t *testing.T) {
		b := newBench(t)
		c, _ := b.call(forkwire.Request{Op: forkwire.OpWait}, "")
		h := <-b.conns
		c.Close()
		if _, err := h.r.ReadByte(); err != io.EOF {
			t.Errorf("the host waits on: %v", err)
		}
	})
}

func TestAnExitCarriesItsResult(t *testing.T) {
	b := newBench(t)
	_, got := b.call(forkwire.Request{Op: forkwire.OpExit, Code: 3}, strings.Repeat("r", forkwire.MaxResult))
	h := <-b.conns
	if h.req.Code != 3 || len(h.result) != forkwire.MaxResult {
		t.Errorf("the host got code %d and %d bytes", h.req.Code, len(h.result))
	}
	_ = forkwire.WriteAnswer(h, forkwire.Answer{}, nil)
	if a := <-got; a.Error != nil {
		t.Errorf("got %+v", a)
	}
}

func TestCallersThatAreWrong(t *testing.T) {
	b := newBench(t)
	for text, words := range map[string]string{
		"rubbish\n":                      "no JSON",
		"{\"op\":\"fork\"}\n":            "n is 0",
		"{\"op\":\"fork\",\"n\":1001}\n": "want 1 to 1000",
		"{\"op\":\"dance\"}\n":           "want fork, wait or exit",
		strings.Repeat("x", 70<<10):      "longer than",
	} {
		c, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(c, text)
		a, _, err := forkwire.ReadAnswer(forkwire.NewReader(c))
		if err != nil {
			t.Errorf("%.20q: %v", text, err)
		} else {
			wantError(t, a, forkwire.Invalid, words)
		}
		c.Close()
	}
}

func TestTooManyCallers(t *testing.T) {
	b := newBench(t)
	for range maxCalls {
		b.call(forkwire.Request{Op: forkwire.OpWait}, "")
		<-b.conns
	}
	_, got := b.call(forkwire.Request{Op: forkwire.OpWait}, "")
	wantError(t, <-got, forkwire.Busy, "under way")
}
