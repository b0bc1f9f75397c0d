package mcp

import (
	"context"
	"errors"
	"io"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxMessage limits one message of a client, in bytes.
const maxMessage = 16 << 20

// ServeStdio serves one session on two streams until the input or ctx ends. The sandboxes of the
// session end with it.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	n := s.newSession(0)
	defer n.close()
	server := s.build(func(*sdk.ServerSession) *session { return n })
	f := newFraming(in, out)
	streams := &sdk.IOTransport{Reader: io.NopCloser(f), Writer: f, MaxLineLength: maxMessage + 2}
	ss, err := server.Connect(ctx, counting{streams, f}, nil)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- ss.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		n.cancel() // or Close waits for calls in progress
		ss.Close()
		<-ended
		return nil
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
