package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// networks holds the requests about sandboxes' networks. Client embeds it.
type networks struct{ conn *connection }

// Network returns the network policy of a sandbox.
func (n networks) Network(ctx context.Context, id string) (api.SandboxNetwork, error) {
	var out api.SandboxNetwork
	return out, n.conn.call(ctx, http.MethodGet, sandboxPath(id, "/network"), nil, &out)
}

// SetNetwork changes the network policy of a running sandbox.
func (n networks) SetNetwork(ctx context.Context, id string, req api.SetNetworkRequest) (api.SandboxNetwork, error) {
	var out api.SandboxNetwork
	return out, n.conn.call(ctx, http.MethodPut, sandboxPath(id, "/network"), req, &out)
}

// Flows returns the open connections of a sandbox.
func (n networks) Flows(ctx context.Context, id string) ([]api.NetworkFlow, error) {
	var out []api.NetworkFlow
	return out, n.conn.call(ctx, http.MethodGet, sandboxPath(id, "/network/flows"), nil, &out)
}

// maxLogLine limits one line of a network log, in bytes.
const maxLogLine = 1 << 20

// NetworkLog calls each with every line of a sandbox's network log. A line is one JSON object, and
// is valid only during the call. With follow it waits for new lines until the sandbox has ended,
// each returns an error, or ctx ends.
func (n networks) NetworkLog(ctx context.Context, id string, follow bool, each func(line []byte) error) error {
	path := sandboxPath(id, "/network/log")
	if follow {
		path += "?follow=true"
	}
	return n.conn.lines(ctx, path, each)
}
