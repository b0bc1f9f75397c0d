package hostileagent

import (
	"context"
	"encoding/binary"
	"net"
	"testing"

	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/dialwire"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
	"github.com/forkd/forkd/internal/guest/agentproto/msgwire"
)

// portCalls are the calls without HTTP.
var portCalls = map[string]func(ctx context.Context, dial agentclient.DialFunc) error{
	"identity": func(ctx context.Context, dial agentclient.DialFunc) error {
		c := agentclient.New(dial, agentclient.WithIdentityPort(dial))
		defer c.Close()
		_, err := c.IdentityByPort(ctx, &agentv1.IdentityRequest{})
		return err
	},
	"identity, dialled ahead": func(ctx context.Context, dial agentclient.DialFunc) error {
		c := agentclient.New(dial, agentclient.WithIdentityPort(dial))
		defer c.Close()
		c.DialIdentity(ctx)
		_, err := c.IdentityByPort(ctx, &agentv1.IdentityRequest{})
		return err
	},
	"eval": func(ctx context.Context, dial agentclient.DialFunc) error {
		c := agentclient.New(dial, agentclient.WithEvalPort(dial))
		defer c.Close()
		_, err := c.Eval(ctx, &agentv1.EvalRequest{Code: "1"})
		return err
	},
}

// sized returns a message with a length prefix.
func sized(n int, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(n)), body...)
}

func TestMessagesOnPortsAreBounded(t *testing.T) {
	files := emptyElements(msgwire.MaxIdentityBytes - 16)
	// An identity's answer holds the response, with its steps, in field 1.
	bomb := append([]byte{0x0a}, binary.AppendUvarint(nil, uint64(len(files)))...)
	bomb = append(bomb, files...)
	for name, c := range map[string]struct {
		a        attack
		violates bool
	}{
		"4 GiB announced":   {after(sized(-1, nil), forever([]byte{0})), true},
		"malformed":         {once(sized(2, []byte{0x0a, 0x7f})), true},
		"elements":          {once(sized(len(bomb), bomb)), false}, // evaluations have none
		"less than it says": {cut(sized(1<<20, []byte{1})), false},
		"half a length":     {cut([]byte{0, 0}), false},
		"nothing":           {cut(), false},
		"an empty answer":   {once(sized(0, nil)), false},
		"answers for ever":  {forever(sized(0, nil)), false},
	} {
		for who, call := range portCalls {
			if name == "elements" && who == "eval" {
				continue // the call's answer has none
			}
			t.Run(name+"/"+who, func(t *testing.T) {
				dial := listen(t, func(conn net.Conn) {
					b := make([]byte, 1024)
					if _, err := conn.Read(b); err == nil {
						c.a(conn)
					}
				})
				err := attacked(t, func(ctx context.Context) error { return call(ctx, dial) })
				if c.violates {
					wantViolation(t, err)
				}
			})
		}
	}
}

// The readers of the other protocols accept bounded messages, for any data from a guest.
func TestOtherReadersAreBounded(t *testing.T) {
	for name, read := range map[string]func(net.Conn) error{
		"a guest's call":      func(c net.Conn) error { _, _, err := forkwire.ReadRequest(forkwire.NewReader(c)); return err },
		"an answer to a dial": func(c net.Conn) error { _, err := dialwire.ReadAnswer(c); return err },
		"an answer to a call": func(c net.Conn) error { _, _, err := forkwire.ReadAnswer(forkwire.NewReader(c)); return err },
	} {
		for what, a := range map[string]attack{
			"garbage": forever([]byte("a")), "an object without end": forever([]byte(`{"op":"exit","ids":["",`)),
			"a huge result": once([]byte(`{"op":"exit","bytes":2000000000}` + "\n")),
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				dial := listen(t, a)
				_ = attacked(t, func(ctx context.Context) error {
					c, err := dial(ctx)
					if err != nil {
						return nil
					}
					defer c.Close()
					return read(c)
				})
			})
		}
	}
}

// Data after an answer is never used as the next answer.
func TestAnAnswerBeforeItsRequest(t *testing.T) {
	answer := message(&agentv1.EvalAnswer{Response: &agentv1.EvalResponse{Result: "1"}})
	dials := 0
	serve := listen(t, func(conn net.Conn) {
		b := make([]byte, 1024)
		for {
			if _, err := conn.Read(b); err != nil {
				return
			}
			two := append(sized(len(answer), answer), sized(len(answer), answer)...)
			if _, err := conn.Write(two); err != nil {
				return
			}
		}
	})
	dial := func(ctx context.Context) (net.Conn, error) { dials++; return serve(ctx) }
	c := agentclient.New(dial, agentclient.WithEvalPort(dial))
	defer c.Close()
	for range 3 {
		if _, err := c.Eval(t.Context(), &agentv1.EvalRequest{Code: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	if dials != 3 {
		t.Errorf("%d connections for 3 answers with one too many each, want 3", dials)
	}
}
