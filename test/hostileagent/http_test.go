package hostileagent

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forkd/forkd/internal/engine/trust"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
	"github.com/forkd/forkd/internal/machine/appliance"

	"connectrpc.com/connect"
)

// call is one of the daemon's calls to an agent.
type call func(ctx context.Context, c *agentclient.Client) error

// unaryCalls are answered with one message.
var unaryCalls = map[string]call{
	"ping": func(ctx context.Context, c *agentclient.Client) error { _, err := c.Ping(ctx); return err },
	"identity": func(ctx context.Context, c *agentclient.Client) error {
		_, err := c.Identity(ctx, &agentv1.IdentityRequest{})
		return err
	},
	"warm": func(ctx context.Context, c *agentclient.Client) error {
		_, err := c.Warm(ctx, &agentv1.WarmRequest{})
		return err
	},
	"quiesce": func(ctx context.Context, c *agentclient.Client) error {
		_, err := c.Quiesce(ctx, &agentv1.QuiesceRequest{})
		return err
	},
	"eval": func(ctx context.Context, c *agentclient.Client) error {
		_, err := c.Eval(ctx, &agentv1.EvalRequest{})
		return err
	},
	"list processes": func(ctx context.Context, c *agentclient.Client) error {
		_, err := c.Process().List(ctx, connect.NewRequest(&process.ListRequest{}))
		return err
	},
	"list a directory": func(ctx context.Context, c *agentclient.Client) error {
		_, err := c.Filesystem().ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{}))
		return err
	},
}

// streamCalls are answered with a stream.
var streamCalls = map[string]call{
	"inventory": func(ctx context.Context, c *agentclient.Client) error {
		s, err := c.Inventory(ctx, false)
		if err != nil {
			return err
		}
		defer s.Close()
		for s.Receive() {
		}
		return s.Err()
	},
	"watch": func(ctx context.Context, c *agentclient.Client) error {
		s, err := c.Filesystem().WatchDir(ctx, connect.NewRequest(&filesystem.WatchDirRequest{}))
		if err != nil {
			return err
		}
		defer s.Close()
		for s.Receive() {
		}
		return s.Err()
	},
}

// plainCalls are routes without Connect.
var plainCalls = map[string]call{
	"health": func(ctx context.Context, c *agentclient.Client) error { return c.Health(ctx) },
	"defaults": func(ctx context.Context, c *agentclient.Client) error {
		return c.ChangeDefaults(ctx, agentclient.Defaults{})
	},
	"download": func(ctx context.Context, c *agentclient.Client) error {
		_, err := c.Download(ctx, "/x", "", io.Discard)
		return err
	},
	"upload": func(ctx context.Context, c *agentclient.Client) error {
		return c.Upload(ctx, "/x", "", 0, strings.NewReader("x"))
	},
	"machine's upload": func(ctx context.Context, c *agentclient.Client) error {
		return appliance.Upload(ctx, c, "/x", strings.NewReader("x"), 1)
	},
	"services":      func(ctx context.Context, c *agentclient.Client) error { _, err := c.Services(ctx, 0); return err },
	"service's log": readLog,
	"trust":         func(ctx context.Context, c *agentclient.Client) error { return trust.Install(ctx, c, "certificate") },
}

// drive runs an attack against each call, and checks its result.
func drive(t *testing.T, a attack, check func(*testing.T, error), groups ...map[string]call) {
	t.Helper()
	for _, calls := range groups {
		for name, call := range calls {
			t.Run(name, func(t *testing.T) {
				c := agentclient.New(listen(t, overHTTP("", a)))
				defer c.Close()
				err := attacked(t, func(ctx context.Context) error { return call(ctx, c) })
				check(t, err)
			})
		}
	}
}

// failed accepts any error.
func failed(*testing.T, error) {}

func raw(text string) []byte { return []byte(text) }

func TestHeadersAreBounded(t *testing.T) {
	for name, a := range map[string]attack{
		"an endless status line":    forever(raw("HTTP/1.1 200 ")),
		"endless headers":           after(raw("HTTP/1.1 200 OK\r\n"), forever(raw("A: b\r\n"))),
		"an endless header":         after(raw("HTTP/1.1 200 OK\r\nA: "), forever(raw("b"))),
		"endless early hints":       forever(raw("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n")),
		"endless 100s":              forever(raw("HTTP/1.1 100 Continue\r\n\r\n")),
		"a switch of protocols":     once(raw("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")),
		"a refusal without end":     answer(500, "application/json", forever(raw(`{"code":"internal","message":"aaaaaaaaaaaaaaaa`))),
		"no HTTP":                   forever([]byte{0xff}),
		"no answer":                 cut(),
		"half a header":             cut(raw("HTTP/1.1 200 OK\r\nA:")),
		"less than the length":      cut(raw("HTTP/1.1 500 X\r\nContent-Length: 100\r\n\r\n{")),
		"a length below zero":       once(raw("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n")),
		"a refusal of many details": answer(500, "application/json", cut(raw(`{"code":"internal","details":[{}`), []byte(strings.Repeat(",{}", 5<<20)))),
	} {
		t.Run(name, func(t *testing.T) { drive(t, a, failed, unaryCalls, streamCalls, plainCalls) })
	}
}

// A successful message must be bounded with any framing.
func TestBodiesAreBounded(t *testing.T) {
	chunked := raw("HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\nTransfer-Encoding: chunked\r\n\r\n")
	ok := func(encoding string) []byte {
		return raw("HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\nContent-Encoding: " + encoding + "\r\nConnection: close\r\n\r\n")
	}
	unknown := protowire.AppendTag(nil, 1000, protowire.BytesType)
	for name, a := range map[string]attack{
		"an endless message":         answer(200, unaryType, forever(protowire.AppendBytes(unknown, make([]byte, 100)))),
		"an endless chunk extension": after(append(chunked, "1;"...), forever(raw("a"))),
		"tiny chunks":                after(chunked, forever(raw("1\r\n\x00\r\n"))),
		"an endless trailer":         after(append(chunked, "0\r\n"...), forever(raw("A: b\r\n"))),
		"a compressed message":       cut(ok("gzip"), gzipped(16<<20)),
		"a malformed message":        answer(200, unaryType, cut([]byte{0x0a, 0x7f})),
		"a bomb of elements":         answer(200, unaryType, cut(emptyElements(agentproto.MaxMessageBytes-2))),
	} {
		t.Run(name, func(t *testing.T) {
			drive(t, a, func(t *testing.T, err error) {
				if name == "an endless message" || name == "a malformed message" {
					wantViolation(t, err)
				}
			}, without(unaryCalls, name == "a bomb of elements", "eval"))
		})
	}
}

// without returns the calls without one: an evaluation's answer has no repeated field.
func without(calls map[string]call, leave bool, name string) map[string]call {
	out := map[string]call{}
	for n, c := range calls {
		if !leave || n != name {
			out[n] = c
		}
	}
	return out
}

// emptyElements returns n bytes of elements of every repeated field that occurs in an answer, two
// bytes each.
func emptyElements(n int) []byte {
	var all []byte
	for _, field := range []protowire.Number{1, 2, 3, 4, 5, 9, 10} {
		all = protowire.AppendBytes(protowire.AppendTag(all, field, protowire.BytesType), nil)
	}
	b := make([]byte, 0, n)
	for len(b)+len(all) <= n {
		b = append(b, all...)
	}
	return b
}

func TestStreamsAreBounded(t *testing.T) {
	bomb := envelope(0, emptyElements(agentproto.MaxMessageBytes-2))
	for name, a := range map[string]attack{
		"a message of 4 GiB":      after([]byte{0, 0xff, 0xff, 0xff, 0xff}, forever([]byte{0})),
		"a bomb of elements":      cut(bomb, bomb),
		"an endless last message": after([]byte{2, 0xff, 0xff, 0xff, 0xff}, forever(raw(`{`))),
		"messages after the last": once(envelope(2, raw("{}")), envelope(0, nil)),
		"a compressed message":    once(envelope(1, gzipped(1<<20))),
		"a malformed message":     once(envelope(0, []byte{0x0a, 0x7f})),
	} {
		t.Run(name, func(t *testing.T) { drive(t, answer(200, streamType, a), wantViolation, streamCalls) })
	}
}

// Short calls have a time limit even without one from their callers, and the agent receives the
// limit.
func TestShortCallsEnd(t *testing.T) {
	for _, name := range []string{"ping", "identity", "quiesce"} {
		limits := make(chan string, 10)
		c := agentclient.New(listen(t, func(conn net.Conn) {
			b := make([]byte, 4096)
			n, _ := conn.Read(b)
			limits <- string(b[:n])
		}))
		_ = unaryCalls[name](context.Background(), c)
		c.Close()
		if head := <-limits; !strings.Contains(head, "Connect-Timeout-Ms") {
			t.Errorf("%s has no time limit: %q", name, head)
		}
	}
}
