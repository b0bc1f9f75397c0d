package mcp

import (
	"context"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxCompletions is the protocol's limit of values in one answer.
const maxCompletions = 100

// complete returns the handler that completes tags and IDs in arguments of prompts and resources.
func (s *Server) complete(of sessionOf) func(context.Context, *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
	return func(ctx context.Context, req *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
		n := of(req.Session)
		ctx, done := n.during(ctx)
		defer done()
		var values []string
		names, err := n.names(ctx, req.Params.Argument.Name)
		for _, name := range names {
			if strings.HasPrefix(name, req.Params.Argument.Value) {
				values = append(values, name)
			}
		}
		total := len(values)
		shown := append([]string{}, values[:min(total, maxCompletions)]...)
		return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{
			Values: shown, Total: total, HasMore: total > len(shown),
		}}, err
	}
}

// names returns the values of an argument. Unknown arguments have none.
func (n *session) names(ctx context.Context, argument string) (names []string, err error) {
	if argument != "snapshot_tag" && argument != "sandbox_id" && argument != "id" {
		return nil, nil
	}
	c, err := n.client(ctx)
	if err != nil {
		return nil, err
	}
	if argument == "snapshot_tag" {
		all, err := c.ListSnapshots(ctx)
		for _, s := range all {
			names = append(names, s.Tag)
		}
		return names, err
	}
	all, err := c.ListSandboxes(ctx)
	for _, sb := range all {
		names = append(names, sb.ID)
	}
	return names, err
}
