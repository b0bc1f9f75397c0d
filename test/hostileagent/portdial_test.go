package hostileagent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/dialwire"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// dialPort connects to a port of a guest as the daemon does: through its VMM to the agent, and
// through the agent to the port.
func dialPort(ctx context.Context, vsock string) error {
	c, err := client.DialVsock(ctx, vsock, agentproto.DialPort)
	if err != nil {
		return err
	}
	defer c.Close()
	code, err := dialwire.Ask(ctx, c, dialwire.Request{Port: 80})
	if err == nil && code != dialwire.OK {
		err = errors.New(code.String())
	}
	return err
}

func TestDialsOfPortsAreBounded(t *testing.T) {
	ok := raw("OK 1\n")
	for name, a := range map[string]attack{
		"an endless line of the VMM": forever(raw("O")),
		"an endless OK":              forever(raw("OK ")),
		"a refusal of the VMM":       once(raw("NO\n")),
		"no VMM":                     cut(),
		"lines without end":          forever(raw("\n")),
		"garbage":                    after(ok, forever([]byte{0xff})),
		"a later version":            once(ok, []byte{2, 0, 0, 0}),
		"an answer with more in it":  once(ok, []byte{1, 0, 0, 1}),
		"an unknown code":            once(ok, []byte{1, 200, 0, 0}),
		"half an answer":             cut(ok, []byte{1, 0}),
		"no answer":                  cut(ok),
		"words for ever":             after(ok, forever(raw(`{"code":"ok"}`))),
	} {
		t.Run(name, func(t *testing.T) {
			vsock := socketOf(t, a)
			_ = attacked(t, func(ctx context.Context) error { return dialPort(ctx, vsock) })
		})
	}
}

// If a VMM or an agent does not answer a dial, the dial ends when its caller's time is over.
func TestASilentDialEndsWithItsCaller(t *testing.T) {
	for name, a := range map[string]attack{
		"the VMM":     once(),
		"half a line": once(raw("OK")),
		"the agent":   once(raw("OK 1\n")),
		"half of it":  once(raw("OK 1\n"), []byte{1, 0}),
	} {
		t.Run(name, func(t *testing.T) {
			vsock := socketOf(t, a)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := dialPort(ctx, vsock)
			if took := time.Since(began); err == nil || took > patience/2 {
				t.Errorf("%v after %s", err, took)
			}
		})
	}
}
