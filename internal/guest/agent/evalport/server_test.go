package evalport_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/forkd/forkd/internal/guest/agent/evalport"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/msgwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guest evaluates code that is a duration: it takes that long, or until its caller leaves.
type guest struct {
	left   chan error
	admits error
}

func (g *guest) eval(ctx context.Context, r *agentv1.EvalRequest) (*agentv1.EvalResponse, error) {
	long, err := time.ParseDuration(r.GetCode())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("no duration"))
	}
	select {
	case <-ctx.Done():
		g.left <- ctx.Err()
		return nil, ctx.Err()
	case <-time.After(long):
		return &agentv1.EvalResponse{Result: r.GetCode()}, nil
	}
}

// dial connects to a server of the guest's evaluations.
func (g *guest) dial(t *testing.T) net.Conn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := evalport.New(evalport.Config{
		Admit: func(net.Addr) error { return g.admits }, Mark: func(ctx context.Context) context.Context { return ctx },
		Eval: g.eval, Answered: func(time.Duration) {}, Log: t.Logf,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Wait()
	})
	return c
}

func send(t *testing.T, c net.Conn, code string) {
	t.Helper()
	if err := msgwire.Write(c, &agentv1.EvalRequest{Code: code}, agentproto.MaxMessageBytes); err != nil {
		t.Fatal(err)
	}
}

// Short and watched requests alternate on one connection, even if the next is sent before the
// answer.
func TestRequestsFollowOneAnother(t *testing.T) {
	c := (&guest{}).dial(t)
	codes := []string{"1ms", "300ms", "0s", "250ms", "x", "1ms"}
	for _, code := range codes {
		send(t, c, code)
	}
	in := bufio.NewReader(c)
	for i, code := range codes {
		var a agentv1.EvalAnswer
		if err := msgwire.Read(in, &a, agentproto.MaxMessageBytes); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		refused := a.GetCode() == uint32(connect.CodeInvalidArgument) && a.GetMessage() == "no duration"
		if code == "x" && !refused || code != "x" && a.GetResponse().GetResult() != code {
			t.Errorf("answer %d: got %v", i, &a)
		}
	}
}

func TestACallerThatLeavesIsNoticed(t *testing.T) {
	for name, after := range map[string]time.Duration{"before it is watched": 0, "when it is": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			g := &guest{left: make(chan error, 1)}
			c := g.dial(t)
			send(t, c, "1h")
			time.Sleep(after) // elapses: the time before the server watches, or after
			c.Close()
			select {
			case err := <-g.left:
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the evaluation goes on")
			}
		})
	}
}

func TestWhoMayNotOrSendsNonsenseIsCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		admits error
		sent   string
	}{
		"not the host": {errors.New("not the host"), "\x00\x00\x00\x04\x12\x020s"},
		"nonsense":     {nil, "GET / HTTP/1.1\r\n\r\n"},
		"too much":     {nil, "\xff\xff\xff\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := (&guest{admits: c.admits}).dial(t)
			_, _ = conn.Write([]byte(c.sent))
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
}
