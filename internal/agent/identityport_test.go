package agent_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/agentproto/agentclient"
)

// An agent of an older snapshot has no port for identities.
func TestIdentityWithoutItsPort(t *testing.T) {
	b := startAgent(t)
	noPort := func(context.Context) (net.Conn, error) { return nil, errors.New("refused") }
	for name, c := range map[string]*agentclient.Client{
		"no port is known": agentclient.New(b.dial),
		"it refuses":       agentclient.New(b.dial, agentclient.WithIdentityPort(noPort)),
	} {
		t.Run(name, func(t *testing.T) {
			defer c.Close()
			one := &bench{Client: c, agent: b.agent, sys: b.sys, root: b.root}
			if r := one.become(t, nil); !r.GetKernelReseeded() {
				t.Errorf("got %v", r)
			}
		})
	}
}

// Whoever sends nonsense to the port, or leaves in the midst, does no harm.
func TestTheIdentityPortGoesOn(t *testing.T) {
	b := startAgent(t)
	for _, sent := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff", "\x00\x00\x00\x05\x0a\xff", "\x00\x00\x10\x00"} {
		c, err := b.identity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(sent)); err != nil {
			t.Error(err)
		}
		c.Close()
	}
	_, err := b.Identity(t.Context(), &identityReq{SandboxId: "sb-1", Entropy: []byte("too little")})
	if wantCode(t, err, connect.CodeInvalidArgument); len(b.sys.seeds) != 0 {
		t.Errorf("%d seeds were taken", len(b.sys.seeds))
	}
	if r := b.become(t, nil); !r.GetKernelReseeded() || len(b.sys.seeds) != 1 {
		t.Errorf("got %v, %d seeds", r, len(b.sys.seeds))
	}
}
