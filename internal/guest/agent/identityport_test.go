package agent_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
)

// Agents of older snapshots have no identity port: they get identities over HTTP, because their
// snapshots do not list the ability. An agent with the port reports it.
func TestTheWayOfAnIdentityIsTheCallers(t *testing.T) {
	b := startAgent(t)
	p, err := b.Ping(t.Context())
	if err != nil || !slices.Contains(p.GetCapabilities(), agentproto.CanIdentityPort) {
		t.Errorf("it can %q, %v", p.GetCapabilities(), err)
	}
	if r, err := b.Identity(t.Context(), newIdentity()); err != nil || !r.GetKernelReseeded() {
		t.Errorf("over HTTP: %v, %v", r, err)
	}
	asked := len(b.sys.seeds)
	noPort := func(context.Context) (net.Conn, error) { return nil, errors.New("refused") }
	for name, c := range map[string]*agentclient.Client{
		"no port is known": agentclient.New(b.dial),
		"it refuses":       agentclient.New(b.dial, agentclient.WithIdentityPort(noPort)),
	} {
		t.Run(name, func(t *testing.T) {
			defer c.Close()
			if r, err := c.IdentityByPort(t.Context(), newIdentity()); err == nil || len(b.sys.seeds) != asked {
				t.Errorf("another way was taken: %v", r)
			}
		})
	}
}

func TestAnAgentWithoutThePortDoesNotSayItHasIt(t *testing.T) {
	b := startAgent(t, func(c *agent.Config) { c.IdentityPort = false })
	p, err := b.Ping(t.Context())
	if err != nil || slices.Contains(p.GetCapabilities(), agentproto.CanIdentityPort) {
		t.Errorf("it can %q, %v", p.GetCapabilities(), err)
	}
}

// Callers that send garbage to the port, or disconnect early, do no harm.
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
	_, err := b.IdentityByPort(t.Context(), &identityReq{SandboxId: "sb-1", Entropy: []byte("too little")})
	if wantCode(t, err, connect.CodeInvalidArgument); len(b.sys.seeds) != 0 {
		t.Errorf("%d seeds were taken", len(b.sys.seeds))
	}
	if r := b.become(t, nil); !r.GetKernelReseeded() || len(b.sys.seeds) != 1 {
		t.Errorf("got %v, %d seeds", r, len(b.sys.seeds))
	}
}
