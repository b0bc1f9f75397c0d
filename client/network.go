package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// networks are the requests about sandboxes' networks; a Client has them.
type networks struct{ conn *connection }

// Network says what a sandbox may reach.
func (n networks) Network(ctx context.Context, id string) (api.SandboxNetwork, error) {
	var out api.SandboxNetwork
	return out, n.conn.call(ctx, http.MethodGet, sandboxPath(id, "/network"), nil, &out)
}

// SetNetwork changes what a running sandbox may reach.
func (n networks) SetNetwork(ctx context.Context, id string, req api.SetNetworkRequest) (api.SandboxNetwork, error) {
	var out api.SandboxNetwork
	return out, n.conn.call(ctx, http.MethodPut, sandboxPath(id, "/network"), req, &out)
}

// Flows are the connections that a sandbox has open.
func (n networks) Flows(ctx context.Context, id string) ([]api.NetworkFlow, error) {
	var out []api.NetworkFlow
	return out, n.conn.call(ctx, http.MethodGet, sandboxPath(id, "/network/flows"), nil, &out)
}

// maxLogLine bounds one line of a network's log.
const maxLogLine = 1 << 20

// NetworkLog calls each with every line of a sandbox's network log, a JSON object. With
// follow it goes on until the sandbox has ended, each fails, or ctx ends.
func (n networks) NetworkLog(ctx context.Context, id string, follow bool, each func(line []byte) error) error {
	path := sandboxPath(id, "/network/log")
	if follow {
		path += "?follow=true"
	}
	return n.conn.lines(ctx, path, each)
}
