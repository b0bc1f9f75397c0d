package agentclient

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// said makes the text of an agent's error safe to show. It keeps the error's code and causes.
func said(err error) error {
	var remote *connect.Error
	if !errors.As(err, &remote) {
		return guesttext.Error(err)
	}
	cause := remote.Unwrap()
	text := guesttext.Error(cause)
	switch {
	case cause == nil, text.Error() == cause.Error():
		return guesttext.Error(err)
	case connect.IsWireError(remote):
		return connect.NewWireError(remote.Code(), text)
	}
	return connect.NewError(remote.Code(), text)
}

// words is an interceptor. It makes the errors of Connect's clients safe to show.
type words struct{}

func (words) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, r)
		return resp, said(err)
	}
}

func (words) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, s connect.Spec) connect.StreamingClientConn {
		return wordsConn{next(ctx, s)}
	}
}

func (words) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// wordsConn is a stream. It makes its errors safe to show.
type wordsConn struct{ connect.StreamingClientConn }

func (c wordsConn) Send(m any) error     { return said(c.StreamingClientConn.Send(m)) }
func (c wordsConn) Receive(m any) error  { return said(c.StreamingClientConn.Receive(m)) }
func (c wordsConn) CloseResponse() error { return said(c.StreamingClientConn.CloseResponse()) }
