package enginefake

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
	"github.com/forkd/forkd/internal/guest/agentproto/tokenwire"
)

// Call describes a call of the fake guest to agentproto.ForkPort.
type Call struct {
	Raw    []byte `json:"raw,omitempty"` // instead of a request
	Req    forkwire.Request
	Size   int  // of the result
	HangUp bool // before the answer
	Keep   bool // do not confirm a child's end
}

// callHost acts as the fake guest's agent. It returns the answer as JSON.
func callHost(f *fake, ctx context.Context, text []byte) (*connect.Response[agentv1.EvalResponse], error) {
	var call Call
	if err := json.Unmarshal(text, &call); err != nil {
		return nil, err
	}
	c, err := f.server.DialHost(ctx, agentproto.ForkPort)
	if err != nil {
		return connect.NewResponse(&agentv1.EvalResponse{Error: err.Error()}), nil
	}
	defer c.Close()
	if call.Raw != nil {
		_, err = c.Write(call.Raw)
	} else {
		err = forkwire.WriteRequest(c, call.Req, make([]byte, call.Size))
	}
	if err != nil {
		return connect.NewResponse(&agentv1.EvalResponse{Error: err.Error()}), nil
	}
	if call.HangUp {
		return connect.NewResponse(&agentv1.EvalResponse{}), nil
	}
	a, _, err := forkwire.ReadAnswer(forkwire.NewReader(c))
	if err != nil {
		return connect.NewResponse(&agentv1.EvalResponse{Error: err.Error()}), nil
	}
	if a.Ended != nil && !call.Keep {
		c.Write([]byte{forkwire.Collected})
		io.Copy(io.Discard, c)
	}
	b, err := json.Marshal(a)
	return connect.NewResponse(&agentv1.EvalResponse{Result: string(b)}), err
}

// hammer makes the guest call the daemon many times in sequence, with garbage. It returns the
// number of accepted calls.
func hammer(f *fake, ctx context.Context, times string) string {
	n, _ := strconv.Atoi(times)
	in := 0
	for range n {
		c, err := f.server.DialHost(ctx, agentproto.ForkPort)
		if err == nil {
			in++
			fmt.Fprint(c, "\x00garbage\n")
			c.Close()
		}
	}
	return fmt.Sprint(in)
}

// askToken acts as the fake guest's agent. It sends a line to the host, and returns the answer as JSON.
func askToken(f *fake, ctx context.Context, line string) (*connect.Response[agentv1.EvalResponse], error) {
	c, err := f.server.DialHost(ctx, agentproto.TokenPort)
	if err != nil {
		return connect.NewResponse(&agentv1.EvalResponse{Error: err.Error()}), nil
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, line); err != nil {
		return connect.NewResponse(&agentv1.EvalResponse{Error: err.Error()}), nil
	}
	a, err := tokenwire.ReadAnswer(c)
	if err != nil {
		return connect.NewResponse(&agentv1.EvalResponse{Error: err.Error()}), nil
	}
	b, err := json.Marshal(a)
	return connect.NewResponse(&agentv1.EvalResponse{Result: string(b)}), err
}
