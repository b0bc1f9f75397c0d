package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// drainTime limits how long calls may take after the end of the input. The SDK cancels them when it
// sees the end, but a client may send requests and close its end at once.
const drainTime = 5 * time.Second

// framing reads messages, one per line. It answers lines that are no valid message itself, because
// the SDK would end the session, and with it the sandboxes. It is the SDK's reader and writer.
type framing struct {
	in   *bufio.Reader
	rest []byte // of the current line

	writing sync.Mutex // so that lines do not mix
	out     io.Writer

	patience time.Duration // for answers after the end of the input

	mu    sync.Mutex    // guards calls
	calls int           // without an answer
	quiet chan struct{} // receives when the last call was answered
}

func newFraming(in io.Reader, out io.Writer) *framing {
	return &framing{in: bufio.NewReaderSize(in, 64<<10), out: out,
		quiet: make(chan struct{}, 1), patience: drainTime}
}

// Write writes one message to the client.
func (f *framing) Write(p []byte) (int, error) {
	f.writing.Lock()
	defer f.writing.Unlock()
	return f.out.Write(p)
}

// Close implements io.Closer. The streams are the caller's.
func (f *framing) Close() error { return nil }

// Read returns valid messages only.
func (f *framing) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		line, err := f.line()
		if err != nil {
			f.drain()
			return 0, err
		}
		f.rest = f.accept(line)
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// line returns the next line. A line over the limit comes cut.
func (f *framing) line() ([]byte, error) {
	var line []byte
	for {
		part, err := f.in.ReadSlice('\n')
		if room := maxMessage + 1 - len(line); room > 0 {
			line = append(line, part[:min(room, len(part))]...)
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// accept returns a valid message with its end, or nothing.
func (f *framing) accept(line []byte) []byte {
	line = bytes.TrimSpace(line)
	switch {
	case len(line) == 0:
		return nil
	case len(line) > maxMessage:
		f.refuse(jsonrpc.CodeInvalidRequest, "the message is longer than 16 MiB")
	case !json.Valid(line):
		f.refuse(jsonrpc.CodeParseError, "the line is not valid JSON: want one message per line")
	case line[0] != '{':
		f.refuse(jsonrpc.CodeInvalidRequest, "want a single message: the protocol has no batches")
	default:
		m, err := jsonrpc.DecodeMessage(line)
		if err != nil {
			f.refuse(jsonrpc.CodeInvalidRequest, "the line is not a JSON-RPC 2.0 message")
			return nil
		}
		if r, is := m.(*jsonrpc.Request); is && r.IsCall() {
			f.add(1)
		}
		return append(line, '\n')
	}
	return nil
}

// refuse answers a line without a usable ID.
func (f *framing) refuse(code int64, message string) {
	b, _ := json.Marshal(map[string]any{ // cannot fail
		"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": message},
	})
	_, _ = f.Write(append(b, '\n')) // the next write of the SDK reports a broken stream
}

// counting is a transport that counts the answers of a framing's calls.
type counting struct {
	sdk.Transport
	f *framing
}

// Connect implements sdk.Transport.
func (c counting) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := c.Transport.Connect(ctx)
	return answering{conn, c.f}, err
}

type answering struct {
	sdk.Connection
	f *framing
}

// Write implements sdk.Connection.
func (a answering) Write(ctx context.Context, m jsonrpc.Message) error {
	if _, is := m.(*jsonrpc.Response); is {
		defer a.f.add(-1)
	}
	return a.Connection.Write(ctx, m)
}

func (f *framing) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls += n; f.calls == 0 {
		select {
		case f.quiet <- struct{}{}:
		default:
		}
	}
}

// drain waits until all calls are answered, within a limit.
func (f *framing) drain() {
	end := time.NewTimer(f.patience)
	defer end.Stop()
	for {
		f.mu.Lock()
		calls := f.calls
		f.mu.Unlock()
		if calls <= 0 {
			return
		}
		select {
		case <-end.C:
			return
		case <-f.quiet:
		}
	}
}
