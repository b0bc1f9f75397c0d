package sandbox

import (
	"context"
	"net"
)

// AgentDialer connects to the agents of sandboxes. Its errors wrap this package's sentinels, as those of all
// interfaces here.
type AgentDialer interface {
	// DialAgent connects to the HTTP server of a sandbox's agent. The caller closes the connection.
	DialAgent(ctx context.Context, id string) (net.Conn, error)
}

// PortDialer connects to servers in sandboxes.
type PortDialer interface {
	// DialPort connects to a TCP port of a sandbox. The connection has a CloseWrite. The caller closes it.
	DialPort(ctx context.Context, id string, port uint16) (net.Conn, error)
}

// Guests runs commands and code in sandboxes, and connects to them.
type Guests interface {
	AgentDialer
	PortDialer
	// Ping asks a sandbox's agent for a sign of life.
	Ping(ctx context.Context, id string) (Pong, error)
	// Exec runs a program and waits for its end.
	Exec(ctx context.Context, id string, req ExecRequest) (ExecResult, error)
	// Eval evaluates code in an interpreter that keeps running.
	Eval(ctx context.Context, id string, req EvalRequest) (EvalResult, error)
}
