package agentclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/evalport"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
)

// echo answers an eval with its code, or follows the code.
type echo struct {
	agentv1connect.UnimplementedAgentHandler
	entered chan struct{}
	left    chan error
}

func (e *echo) Eval(ctx context.Context, r *connect.Request[agentv1.EvalRequest]) (*connect.Response[agentv1.EvalResponse], error) {
	switch code := r.Msg.GetCode(); {
	case code == "hang":
		e.entered <- struct{}{}
		<-ctx.Done()
		e.left <- ctx.Err()
		return nil, ctx.Err()
	case code == "no":
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("no such interpreter"))
	case code == "large":
		return connect.NewResponse(&agentv1.EvalResponse{Result: strings.Repeat("x", 3<<20)}), nil
	default:
		return connect.NewResponse(&agentv1.EvalResponse{Result: code + r.Header().Get("X-Access-Token")}), nil
	}
}

type served struct {
	*agentclient.Client
	agent *echo
	dials atomic.Int64
	conns sync.Map // on the agent's side
}

// ways are the transports for an evaluation.
var ways = []string{"http", "port"}

// serve returns a client of an agent that evaluates over one of the transports. The other transport
// does not exist.
func serve(tb testing.TB, way string, opts ...agentclient.Option) *served {
	tb.Helper()
	s := &served{agent: &echo{entered: make(chan struct{}, 1), left: make(chan error, 1)}}
	path := filepath.Join(tb.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	end := s.serve(way, &noting{l, &s.conns})
	dial := func(ctx context.Context) (net.Conn, error) {
		s.dials.Add(1)
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	if way == "port" {
		opts = append(opts, agentclient.WithEvalPort(dial))
		dial = func(context.Context) (net.Conn, error) { return nil, errors.New("no HTTP here") }
	}
	s.Client = agentclient.New(dial, opts...)
	tb.Cleanup(func() {
		s.Close()
		end()
	})
	return s
}

func (s *served) serve(way string, l net.Listener) (end func()) {
	done := make(chan error, 1)
	if way == "port" {
		ctx, cancel := context.WithCancel(context.Background())
		srv := evalport.New(evalport.Config{
			Admit: func(net.Addr) error { return nil }, Mark: func(ctx context.Context) context.Context { return ctx },
			Eval: s.evaluate, Answered: func(time.Duration) {}, Log: func(string, ...any) {},
		})
		go func() { done <- srv.Serve(ctx, l) }()
		return func() { cancel(); <-done }
	}
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewAgentHandler(s.agent))
	srv := &http.Server{Handler: mux}
	go func() { done <- srv.Serve(l) }()
	return func() { srv.Close(); <-done }
}

func (s *served) evaluate(ctx context.Context, r *agentv1.EvalRequest) (*agentv1.EvalResponse, error) {
	resp, err := s.agent.Eval(ctx, connect.NewRequest(r))
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

// noting is a listener that records accepted connections.
type noting struct {
	net.Listener
	conns *sync.Map
}

func (n *noting) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		n.conns.Store(c, true)
	}
	return c, err
}

func (s *served) ask(ctx context.Context, code string) (string, error) {
	r, err := s.Eval(ctx, &agentv1.EvalRequest{Code: code})
	return r.GetResult(), err
}

// keep is called while an answer arrives, and the call ends without room. The next request uses a
// new connection.
func TestAnAnswerIsAskedForAsItComes(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := serve(t, way)
			for _, room := range []int{1 << 20, 4 << 20} {
				kept := 0
				r, err := s.EvalWithin(t.Context(), &agentv1.EvalRequest{Code: "large"}, func(n int) int {
					n = min(n, room-kept)
					kept += n
					return n
				})
				if fits := room > 3<<20; fits && (err != nil || len(r.GetResult()) != 3<<20 || kept < 3<<20) ||
					!fits && (!errors.Is(err, agentclient.ErrNoRoom) || kept != room) {
					t.Errorf("room for %d bytes: %d are kept, %v", room, kept, err)
				}
			}
			if got, err := s.ask(t.Context(), "small"); got != "small" || err != nil {
				t.Errorf("the next: %q, %v", got, err)
			}
		})
	}
}

func TestEvalsShareOneConnection(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := serve(t, way)
			for i := range 5 {
				if got, err := s.ask(t.Context(), fmt.Sprint(i)); err != nil || got != fmt.Sprint(i) {
					t.Errorf("%q, %v", got, err)
				}
			}
			if got, err := s.ask(t.Context(), "large"); err != nil || len(got) != 3<<20 {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			_, err := s.ask(t.Context(), "no")
			if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "no such interpreter") {
				t.Errorf("got %v", err)
			}
			if _, err = s.ask(t.Context(), "after"); err != nil || s.dials.Load() != 1 {
				t.Errorf("%d connections, %v", s.dials.Load(), err)
			}
			s.CloseIdle()
			if _, err := s.ask(t.Context(), "anew"); err != nil || s.dials.Load() != 2 {
				t.Errorf("%d connections, %v", s.dials.Load(), err)
			}
		})
	}
}

// A connection closed by the agent is detected before a request is sent. After that, the client
// could not know whether the request was carried out.
func TestAConnectionThatTheAgentClosedIsNotUsed(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := serve(t, way)
			if _, err := s.ask(t.Context(), "1"); err != nil {
				t.Fatal(err)
			}
			s.conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
			if got, err := s.ask(t.Context(), "2"); err != nil || got != "2" || s.dials.Load() != 2 {
				t.Errorf("%q, %v, %d connections", got, err, s.dials.Load())
			}
		})
	}
}

func TestAnEvalThatNobodyWaitsForIsCalledOff(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			for name, c := range map[string]struct {
				end  func(context.Context) (context.Context, context.CancelFunc)
				code connect.Code
			}{
				"cancelled": {context.WithCancel, connect.CodeCanceled},
				"late": {func(ctx context.Context) (context.Context, context.CancelFunc) {
					return context.WithTimeout(ctx, 20*time.Millisecond)
				}, connect.CodeDeadlineExceeded},
			} {
				t.Run(name, func(t *testing.T) {
					s := serve(t, way)
					ctx, cancel := c.end(t.Context())
					defer cancel()
					go func() {
						<-s.agent.entered
						if name == "cancelled" {
							cancel()
						}
					}()
					if _, err := s.ask(ctx, "hang"); connect.CodeOf(err) != c.code {
						t.Errorf("got %v", err)
					}
					if err := <-s.agent.left; err == nil {
						t.Error("the agent was not told")
					}
					if got, err := s.ask(t.Context(), "next"); err != nil || got != "next" {
						t.Errorf("%q, %v", got, err)
					}
				})
			}
		})
	}
}

func TestEvalsAtTheSameTime(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := serve(t, way)
			var all sync.WaitGroup
			for i := range 32 {
				all.Go(func() {
					for range 20 {
						if got, err := s.ask(t.Context(), fmt.Sprint(i)); err != nil || got != fmt.Sprint(i) {
							t.Errorf("%q, %v", got, err)
						}
					}
				})
			}
			all.Wait()
		})
	}
}

func TestATokenIsShown(t *testing.T) {
	s := serve(t, "http", agentclient.WithToken("-token"))
	if got, err := s.ask(t.Context(), "1"); err != nil || got != "1-token" {
		t.Errorf("%q, %v", got, err)
	}
}

// An agent of an older snapshot has no port for evaluations. The client detects this once.
func TestAnAgentWithoutTheEvalPortIsAskedOverHTTP(t *testing.T) {
	var tries atomic.Int64
	s := serve(t, "http", agentclient.WithEvalPort(func(context.Context) (net.Conn, error) {
		tries.Add(1)
		return nil, errors.New("refused")
	}))
	for range 3 {
		if got, err := s.ask(t.Context(), "1"); err != nil || got != "1" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if tries.Load() != 1 || s.dials.Load() != 1 {
		t.Errorf("%d tries of the port, %d connections over HTTP", tries.Load(), s.dials.Load())
	}
	defer s.DialEval(t.Context())()
	if tries.Load() != 1 {
		t.Error("it is dialled ahead all the same")
	}
}

// A request that was sent is not sent again over the other transport, because it may have been
// carried out.
func TestAnEvalThatBreaksIsNotSentTwice(t *testing.T) {
	s := serve(t, "http", agentclient.WithEvalPort(func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() { io.ReadFull(theirs, make([]byte, 4)); theirs.Close() }()
		return ours, nil
	}))
	if _, err := s.ask(t.Context(), "1"); connect.CodeOf(err) != connect.CodeUnavailable || s.dials.Load() != 0 {
		t.Errorf("%v, %d connections over HTTP", err, s.dials.Load())
	}
}

func TestAnswersOfThePortThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		said string
		code connect.Code
	}{
		"nothing":            {"", connect.CodeUnavailable},
		"HTTP":               {"HTTP/1.1 400 Bad Request\r\n\r\n", connect.CodeInternal},
		"cut short":          {"\x00\x00\x00\x05\x08", connect.CodeUnavailable},
		"no message":         {"\x00\x00\x00\x02\xff\xff", connect.CodeInternal},
		"neither":            {"\x00\x00\x00\x00", connect.CodeUnknown},
		"a code of nobody's": {"\x00\x00\x00\x03\x10\xff\x01", connect.CodeUnknown},
		"a code":             {"\x00\x00\x00\x02\x10\x09", connect.CodeFailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "http", agentclient.WithEvalPort(func(context.Context) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					go io.Copy(io.Discard, theirs)
					io.WriteString(theirs, c.said)
					theirs.Close()
				}()
				return ours, nil
			}))
			if r, err := s.ask(t.Context(), "1"); connect.CodeOf(err) != c.code {
				t.Errorf("got %q, %v", r, err)
			}
		})
	}
}

// A guest may send any answer, or none.
func TestAnswersThatAreNone(t *testing.T) {
	for name, said := range map[string]string{
		"nothing":            "",
		"no HTTP":            "hello\r\n\r\n",
		"a header for ever":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 17<<20),
		"a body that ends":   "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"a body for ever":    "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 17<<20),
		"no message":         "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\xff\xff\xff",
		"an error of no one": "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno",
	} {
		t.Run(name, func(t *testing.T) {
			c := agentclient.New(func(context.Context) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					go io.Copy(io.Discard, theirs)
					io.WriteString(theirs, said)
					theirs.Close()
				}()
				return ours, nil
			})
			defer c.Close()
			if r, err := c.Eval(t.Context(), &agentv1.EvalRequest{Code: "1"}); err == nil {
				t.Errorf("got %v", r)
			}
		})
	}
}

// BenchmarkEval is a round trip to an agent in this process: port is the daemon's way, http its way
// to an agent without that port, and transport uses http.Transport. switches counts both sides.
func BenchmarkEval(b *testing.B) {
	for _, way := range []string{"transport", "http", "port"} {
		b.Run(way, func(b *testing.B) {
			s := serve(b, strings.Replace(way, "transport", "http", 1))
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			req := &agentv1.EvalRequest{Language: "python", Code: "1 + 1", TimeoutNs: int64(time.Minute)}
			ask := func() error { _, err := s.Eval(ctx, req); return err }
			if way == "transport" {
				ask = func() error { _, err := s.Agent().Eval(ctx, connect.NewRequest(req)); return err }
			}
			if err := ask(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			before := switches(b)
			for b.Loop() {
				if err := ask(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(switches(b)-before)/float64(b.N), "switches/op")
		})
	}
}

func switches(b *testing.B) int64 {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return r.Nvcsw + r.Nivcsw
}
