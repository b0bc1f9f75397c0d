// Package evalport serves evaluations on their own port, without HTTP. Each connection carries
// messages of package msgwire, one request and one answer at a time, and stays open for the next
// request. The caller provides interpreter and listener. In a clone, all connections of the source
// break at the same time, although their callers still talk to the source. Config.Mark lets the
// caller of this package detect that from a request's context.
package evalport

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/msgwire"
)

// writeLimit limits the time to send an answer.
const writeLimit = 30 * time.Second

// Config configures a Server.
type Config struct {
	// Admit refuses callers by their address.
	Admit func(net.Addr) error
	// Mark returns the context of a request.
	Mark func(context.Context) context.Context
	// Eval carries out a request. Its errors have Connect's codes.
	Eval func(context.Context, *agentv1.EvalRequest) (*agentv1.EvalResponse, error)
	// Answered is called after each request, once its answer is sent. took is the duration of the
	// request.
	Answered func(took time.Duration)
	// Log receives one line per noteworthy event.
	Log func(format string, args ...any)
}

// Server answers requests on connections.
type Server struct {
	cfg   Config
	conns sync.WaitGroup
}

// New returns a Server.
func New(c Config) *Server { return &Server{cfg: c} }

// Wait waits, after Serve, for evaluations that continue without their callers. The owner of the
// interpreters must end them.
func (s *Server) Wait() { s.conns.Wait() }

// Serve answers on l until ctx ends or l fails, then breaks all connections. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case err != nil:
			return err
		}
		s.conns.Go(func() { s.serve(ctx, c) })
	}
}

// serve answers the requests on one connection and closes it.
func (s *Server) serve(ctx context.Context, c net.Conn) {
	defer c.Close()
	if err := s.cfg.Admit(c.RemoteAddr()); err != nil {
		s.cfg.Log("eval: %v", err)
		return
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	in := bufio.NewReader(c)
	for {
		var req agentv1.EvalRequest
		if err := msgwire.Read(in, &req, agentproto.MaxMessageBytes); err != nil {
			return // usually the caller has closed it
		}
		began := time.Now()
		answer, stays := s.answer(ctx, c, in, &req)
		_ = c.SetWriteDeadline(time.Now().Add(writeLimit))
		err := msgwire.Write(c, answer, agentproto.MaxMessageBytes)
		s.cfg.Answered(time.Since(began))
		if err != nil || !stays {
			return
		}
	}
}

// answer carries out a request. The request's context ends if the caller disconnects.
func (s *Server) answer(ctx context.Context, c net.Conn, in *bufio.Reader,
	req *agentv1.EvalRequest) (_ *agentv1.EvalAnswer, stays bool) {
	ctx, cancel := context.WithCancel(s.cfg.Mark(ctx))
	defer cancel()
	w := watch(c, in, cancel)
	r, err := s.cfg.Eval(ctx, req)
	stays = w.stop()
	if err != nil {
		return refusal(err), stays
	}
	return &agentv1.EvalAnswer{Response: r}, stays
}

func refusal(err error) *agentv1.EvalAnswer {
	text := err.Error()
	var ce *connect.Error
	if errors.As(err, &ce) {
		text = ce.Message()
	}
	return &agentv1.EvalAnswer{Code: uint32(connect.CodeOf(err)), Message: text}
}
