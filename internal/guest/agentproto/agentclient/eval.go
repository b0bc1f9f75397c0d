package agentclient

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
	"github.com/forkd/forkd/internal/guest/agentproto/msgwire"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// evals holds the two transports of evaluations.
type evals struct {
	port   *unary // the evaluation port; may be nil
	http   *unary // may be nil, then Eval uses the generic client, in JSON
	noPort atomic.Bool
}

func newEvals(dial DialFunc, o options) *evals {
	e := &evals{}
	if o.json {
		return e
	}
	e.http = &unary{dial: dial, ask: overHTTP(agentv1connect.AgentEvalProcedure, o.token)}
	if o.eval != nil {
		e.port = &unary{dial: o.eval, ask: overPort}
	}
	return e
}

// way returns the transport to use, or nil if there is neither.
func (e *evals) way() *unary {
	if e.port != nil && !e.noPort.Load() {
		return e.port
	}
	return e.http
}

// each calls f for each existing transport.
func (e *evals) each(f func(*unary)) {
	for _, u := range []*unary{e.port, e.http} {
		if u != nil {
			f(u)
		}
	}
}

// Eval runs code in a warmed interpreter. An exception in the code is an answer, not an error. An
// older agent has no evaluation port and refuses the connection. Eval uses HTTP from then on. This
// is safe, because the refused request was not sent and so cannot run twice.
func (c *Client) Eval(ctx context.Context, req *agentv1.EvalRequest) (*agentv1.EvalResponse, error) {
	r, err := c.evals.ask(ctx, c.agent, req, nil)
	if err != nil {
		return nil, fmt.Errorf("eval: %w", said(err))
	}
	return r, nil
}

// ErrNoRoom is the error of EvalWithin if there was no room for the answer.
var ErrNoRoom = errors.New("the answer of the evaluation is too large")

// EvalWithin runs Eval with a limit on the answer. While the answer arrives, keep gets a number of
// bytes and returns how many may be kept. If that is fewer, the call ends with ErrNoRoom; the code
// has run by then.
func (c *Client) EvalWithin(ctx context.Context, req *agentv1.EvalRequest,
	keep func(n int) int) (*agentv1.EvalResponse, error) {
	r, err := c.evals.ask(ctx, c.agent, req, keep)
	if err != nil {
		return nil, fmt.Errorf("eval: %w", said(err))
	}
	return r, nil
}

func (e *evals) ask(ctx context.Context, agent agentv1connect.AgentClient, req *agentv1.EvalRequest,
	keep func(n int) int) (*agentv1.EvalResponse, error) {
	if e.way() == nil {
		r, err := agent.Eval(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return r.Msg, nil
	}
	if e.way() == e.port {
		var a agentv1.EvalAnswer
		err := e.port.call(ctx, req, &a, keep)
		var none unreached
		switch {
		case err == nil && a.GetResponse() == nil:
			return nil, refusedBy(&a)
		case err == nil:
			return a.GetResponse(), nil
		case !errors.As(err, &none) || ctx.Err() != nil:
			return nil, err
		}
		e.noPort.Store(true)
	}
	var r agentv1.EvalResponse
	if err := e.http.call(ctx, req, &r, keep); err != nil {
		return nil, err
	}
	return &r, nil
}

// DialEval starts to open a connection for Eval unless an idle one exists. ctx cancels the dial.
// The caller calls drop when Eval has returned, or if Eval is not called.
func (c *Client) DialEval(ctx context.Context) (drop func()) {
	u := c.evals.way()
	if u == nil {
		return func() {}
	}
	u.dialAhead(ctx)
	return u.ahead.drop
}

// overPort is an exchange on the evaluation port.
func overPort(ctx context.Context, l *link, in, out proto.Message) (keep bool, err error) {
	if n := proto.Size(in); n > agentproto.MaxMessageBytes {
		return true, connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("a request of %d bytes, want at most %d", n, agentproto.MaxMessageBytes))
	}
	if err := msgwire.Write(l.conn, in, agentproto.MaxMessageBytes); err != nil {
		return false, broken(ctx, err)
	}
	l.limit.N = 4 + agentproto.MaxMessageBytes
	if err := msgwire.Read(l.in, out, agentproto.MaxMessageBytes); err != nil {
		return false, broken(ctx, err)
	}
	return l.in.Buffered() == 0, nil
}

// refusedBy returns the error in an agent's answer. A code unknown to Connect becomes CodeUnknown.
func refusedBy(a *agentv1.EvalAnswer) error {
	code := connect.Code(a.GetCode())
	if code < connect.CodeCanceled || code > connect.CodeUnauthenticated {
		code = connect.CodeUnknown
	}
	return connect.NewWireError(code, guesttext.New(a.GetMessage()))
}
