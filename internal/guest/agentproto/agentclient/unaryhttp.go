package agentclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/guard"
	"github.com/forkd/forkd/internal/guest/agentproto/protobound"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// overHTTP returns an exchange over HTTP/1.1 with Connect's protocol.
func overHTTP(procedure, token string) exchange {
	return func(ctx context.Context, l *link, in, out proto.Message) (keep bool, err error) {
		return l.roundTrip(ctx, procedure, token, in, out)
	}
}

// roundTrip sends a request and receives its answer. See exchange.
func (l *link) roundTrip(ctx context.Context, procedure, token string, in, out proto.Message) (keep bool, err error) {
	if err := l.write(ctx, procedure, token, in); err != nil {
		return false, err
	}
	resp, err := l.readHead()
	if err != nil {
		return false, broken(ctx, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, broken(ctx, err)
	}
	keep = !resp.Close && l.in.Buffered() == 0
	if resp.StatusCode != http.StatusOK {
		return keep, refused(resp.Status, body)
	}
	if err := protobound.Decode(body, out, protobound.MaxElements); err != nil {
		return false, connect.NewError(connect.CodeInternal, fmt.Errorf("decode answer: %w", err))
	}
	return keep, nil
}

// readHead reads the header of an answer. It limits the size of the body and of its framing.
func (l *link) readHead() (*http.Response, error) {
	l.limit.N = maxHeaderBytes
	resp, err := http.ReadResponse(l.in, nil)
	if err != nil {
		if l.limit.N <= 0 {
			return nil, agentproto.Violationf("a header of more than %d bytes", maxHeaderBytes)
		}
		return nil, err
	}
	l.limit.N = 2 * agentproto.MaxMessageBytes
	return resp, guard.Response(unaryRequest, resp)
}

// unaryRequest looks like the requests sent by write. guard.Response needs it to choose the limit
// of the answer.
var unaryRequest = &http.Request{Header: http.Header{"Content-Type": {"application/proto"}}}

// write sends a request in one write.
func (l *link) write(ctx context.Context, procedure, token string, in proto.Message) error {
	b := &l.out
	b.Reset()
	fmt.Fprintf(b, "POST %s HTTP/1.1\r\nHost: agent\r\nContent-Type: application/proto\r\nConnect-Protocol-Version: 1\r\n"+
		"Content-Length: %d\r\n", procedure, proto.Size(in))
	if deadline, ok := ctx.Deadline(); ok {
		fmt.Fprintf(b, "Connect-Timeout-Ms: %s\r\n", strconv.FormatInt(max(0, time.Until(deadline).Milliseconds()), 10))
	}
	if token != "" {
		fmt.Fprintf(b, "X-Access-Token: %s\r\n", token)
	}
	b.WriteString("\r\n")
	whole, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b.Bytes(), in)
	if err != nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("encode request: %w", err))
	}
	if _, err := l.conn.Write(whole); err != nil {
		return broken(ctx, err)
	}
	return nil
}

// refused returns the error in an agent's answer.
func refused(status string, body []byte) error {
	var e struct {
		Code    connect.Code `json:"code"`
		Message string       `json:"message"`
	}
	if json.Unmarshal(body, &e) != nil || e.Code == 0 {
		return connect.NewError(connect.CodeUnknown, fmt.Errorf("the agent answers %s", guesttext.Of(status)))
	}
	return connect.NewWireError(e.Code, guesttext.New(e.Message))
}
