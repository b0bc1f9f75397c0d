package hostileagent

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
	"github.com/forkd/forkd/internal/machine/appliance"
)

// event is one frame of a program's stream.
func event(e *process.ProcessEvent) []byte {
	return envelope(0, message(&process.StartResponse{Event: e}))
}

func started() []byte {
	return event(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 1}}})
}

func ended(status string) []byte {
	end := &process.ProcessEvent_EndEvent{Exited: true, Status: status}
	return event(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
}

func printed(n int) []byte {
	out := &process.ProcessEvent_DataEvent_Stdout{Stdout: make([]byte, n)}
	return event(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: out}}})
}

func alive() []byte {
	return event(&process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}})
}

// execClients are the clients that run a program. Blocked input is the worst case, because its
// reader is left running.
var execClients = map[string]func(ctx context.Context, t *testing.T, dial agentclient.DialFunc) error{
	"daemon": func(ctx context.Context, _ *testing.T, dial agentclient.DialFunc) error {
		c := agentclient.New(dial)
		defer c.Close()
		_, err := c.Exec(ctx, agentclient.ExecRequest{Args: []string{"true"}, Stdin: []byte("input")})
		return err
	},
	"machine": func(ctx context.Context, _ *testing.T, dial agentclient.DialFunc) error {
		c := agentclient.New(dial, agentclient.WithToken("secret"))
		defer c.Close()
		_, err := appliance.Run(ctx, c, appliance.Command{Args: []string{"true"}, Stdin: blocked{ctx}})
		return err
	},
	"command line": func(ctx context.Context, t *testing.T, dial agentclient.DialFunc) error {
		_, err := commandLine(t, dial).ExecStream(ctx, "sb-1", client.ExecOptions{Args: []string{"true"}, Stdin: blocked{ctx}})
		return err
	},
}

// blocked is an input without any data.
type blocked struct{ ctx context.Context }

func (b blocked) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, b.ctx.Err() }

func TestAProgramsStreamIsAStateMachine(t *testing.T) {
	stream := func(a attack) attack { return answer(200, streamType, a) }
	for name, a := range map[string]attack{
		"starts for ever":         stream(forever(started())),
		"starts twice":            stream(once(started(), started())),
		"keepalives for ever":     stream(after(started(), forever(alive()))),
		"output before the start": stream(once(printed(1))),
		"end before the start":    stream(once(ended("exit status 0"))),
		"output after the end":    stream(once(started(), ended("exit status 0"), printed(1))),
		"ends twice":              stream(once(started(), ended("exit status 0"), ended("exit status 0"))),
		"ends for ever":           stream(after(started(), forever(ended("exit status 0")))),
		"events of no kind":       stream(after(started(), forever(event(&process.ProcessEvent{})))),
		"empty messages":          stream(after(started(), forever(envelope(0, nil)))),
		"a long status":           stream(once(started(), ended(strings.Repeat("x", 1<<20)))),
		"a message of 4 GiB":      stream(after([]byte{0, 0xff, 0xff, 0xff, 0xff}, forever([]byte{0}))),
		"a compressed message":    stream(once(envelope(1, gzipped(1<<20)))),
		"unknown flags":           stream(once(envelope(0x40, nil))),
		"an endless last message": stream(after([]byte{2, 0xff, 0xff, 0xff, 0xff}, forever([]byte(`{"metadata":{"a":[]}`)))),
		"messages after the last": stream(once(started(), envelope(2, []byte("{}")), started())),
		"malformed messages":      stream(once(envelope(0, []byte{0x0a, 0x7f}))),
	} {
		for who, run := range execClients {
			t.Run(name+"/"+who, func(t *testing.T) {
				dial := listen(t, overHTTP(processconnect.ProcessStartProcedure, a))
				err := attacked(t, func(ctx context.Context) error { return run(ctx, t, dial) })
				if who != "command line" { // its errors keep only the text
					wantViolation(t, err)
				} else if err == nil || !strings.Contains(err.Error(), "broke its protocol") {
					t.Errorf("%v, want a violation of the protocol", err)
				}
			})
		}
	}
}

func TestAProgramsStreamIsCut(t *testing.T) {
	for name, a := range map[string]attack{
		"no message":       cut(),
		"half a head":      cut([]byte{0, 0}),
		"half a message":   cut(started()[:6]),
		"no end":           cut(started(), printed(9)),
		"an end of stream": cut(started(), envelope(2, []byte("{}"))),
	} {
		for who, run := range execClients {
			t.Run(name+"/"+who, func(t *testing.T) {
				dial := listen(t, overHTTP(processconnect.ProcessStartProcedure, answer(200, streamType, a)))
				_ = attacked(t, func(ctx context.Context) error { return run(ctx, t, dial) })
			})
		}
	}
}

// The exit status is known when the program has ended. A stream that stays open costs only a short
// wait.
func TestAStreamThatStaysOpenAfterTheEnd(t *testing.T) {
	for name, a := range map[string]attack{
		"no end of the stream": once(started(), ended("exit status 0")),
		"no end of the answer": once(started(), ended("exit status 0"), envelope(2, []byte("{}"))),
	} {
		t.Run(name, func(t *testing.T) {
			dial := listen(t, overHTTP(processconnect.ProcessStartProcedure, answer(200, streamType, a)))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := execClients["daemon"](ctx, t, dial); err != nil {
				t.Error(err)
			}
		})
	}
}

// A program may print endlessly. The client keeps a bounded part.
func TestEndlessOutputIsNotKept(t *testing.T) {
	const most, enough = 1 << 20, 256 << 20
	dial := listen(t, overHTTP(processconnect.ProcessStartProcedure,
		answer(200, streamType, after(started(), forever(printed(32<<10))))))
	c := agentclient.New(dial)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	seen := 0
	var res agentclient.ExecResult
	var err error
	used := watch(func() {
		res, err = c.Exec(ctx, agentclient.ExecRequest{Args: []string{"yes"}, MaxOutput: most,
			OnOutput: func(_ bool, b []byte) {
				if seen += len(b); seen > enough {
					cancel()
				}
			}})
	})
	if !errors.Is(err, context.Canceled) || len(res.Stdout) != most || used.heap > maxHeap {
		t.Errorf("%v; kept %d bytes of %d, used %d MiB", err, len(res.Stdout), seen, used.heap>>20)
	}
}

// Honest programs work: quiet ones with keepalives, and large messages.
func TestAnHonestStream(t *testing.T) {
	dial := listen(t, overHTTP(processconnect.ProcessStartProcedure, answer(200, streamType, cut(started(), alive(), printed(9),
		printed(agentproto.MaxMessageBytes-64), alive(), ended("exit status 0"), envelope(2, []byte("{}"))))))
	c := agentclient.New(dial)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	res, err := c.Exec(ctx, agentclient.ExecRequest{Args: []string{"true"}, MaxOutput: 10})
	if err != nil || res.Pid != 1 || !bytes.Equal(res.Stdout, make([]byte, 10)) {
		t.Errorf("%+v after %s: %v", res, time.Since(began), err)
	}
}
