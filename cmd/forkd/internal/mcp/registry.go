package mcp

import (
	"context"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/forkd/forkd/client"
)

// effect is what a tool may change.
type effect int

const (
	reads    effect = iota // changes no sandbox or snapshot
	adds                   // makes something new
	changes                // changes something, and can be repeated or undone
	destroys               // may lose data
)

// tool describes a tool to clients and models.
type tool struct {
	name, title, about string
	effect             effect
	// outside is set if the tool may reach the internet, through programs in a sandbox.
	outside bool
}

// annotations returns the protocol's hints. Clients may ask the user before a destructive call.
func (t tool) annotations() *sdk.ToolAnnotations {
	destructive, open := t.effect == destroys, t.outside
	return &sdk.ToolAnnotations{
		Title: t.title, ReadOnlyHint: t.effect == reads, DestructiveHint: &destructive, OpenWorldHint: &open,
		IdempotentHint: t.effect == reads || t.effect == changes,
	}
}

// registry adds the tools the options allow.
type registry struct {
	server *sdk.Server
	opt    Options
	of     sessionOf
	names  []string // of all tools, those that are not added included
}

func (r *registry) wants(t tool) bool {
	r.names = append(r.names, t.name)
	return r.server != nil && (!r.opt.ReadOnly || t.effect == reads) &&
		(len(r.opt.Tools) == 0 || slices.Contains(r.opt.Tools, t.name))
}

// call is one call of a tool.
type call struct {
	*session
	client *client.Client
	tell   progress
}

// add adds a tool. Errors of work become results that the model can read.
func add[In, Out any](r *registry, t tool, work func(context.Context, call, In) (Out, error)) {
	if !r.wants(t) {
		return
	}
	described := &sdk.Tool{Name: t.name, Title: t.title, Description: t.about, Annotations: t.annotations(),
		InputSchema: schemaOf[In](), OutputSchema: schemaOf[Out]()}
	sdk.AddTool(r.server, described,
		func(ctx context.Context, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
			n := r.of(req.Session)
			ctx, done := n.during(ctx)
			defer done()
			var out Out
			c, err := n.client(ctx)
			if err == nil {
				out, err = work(ctx, call{n, c, progressOf(ctx, req)}, in)
			}
			if err != nil {
				n.opt.Log.Info("tool failed", "tool", t.name, "error", err)
				return nil, out, failureOf(err)
			}
			return nil, out, nil
		})
}

// Tools returns the names of all tools, sorted.
func Tools() []string {
	r := &registry{}
	(&Server{}).addTools(r)
	slices.Sort(r.names)
	return r.names
}
