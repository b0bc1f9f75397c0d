package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// pattern is a prompt: a way to work with forks. Its text has {argument} in place of the arguments.
type pattern struct {
	prompt sdk.Prompt
	text   string
}

func argument(name, about string, required bool) *sdk.PromptArgument {
	return &sdk.PromptArgument{Name: name, Description: about, Required: required}
}

func patterns() []pattern {
	return []pattern{
		{
			prompt: sdk.Prompt{
				Name: "try_ways", Title: "Try several ways, keep the best",
				Description: "Prepare a sandbox, fork it into several, try another way in each, and keep the best.",
				Arguments: []*sdk.PromptArgument{
					argument("task", "the task to solve", true),
					argument("snapshot_tag", "snapshot to start from; chosen from list_snapshots if absent", false),
					argument("ways", "number of ways to try; 3 if absent", false),
				},
			},
			text: `Solve this task by trying {ways} different ways, and keep the best.

Task: {task}

1. spawn_sandboxes with n 1 from snapshot {snapshot_tag}. Prepare in it all that the ways share: files, packages, data.
2. branch_sandbox on it with n {ways}. Each child continues from that moment.
3. Think of {ways} ways that really differ. Do one in each child. Do not mix them.
4. Decide by a measurement that prints a number, such as tests passed or seconds taken. keep_best runs it in each
   child, keeps the best and ends the others.
5. promote_sandbox puts the best in the place of the first sandbox, if the work goes on there. Call keep_sandbox
   if the user wants the best to stay after this session.
6. Report each way with its measurement, and why the best won.`,
		},
		{
			prompt: sdk.Prompt{
				Name: "branch_before_risk", Title: "Branch before a risky step",
				Description: "Save a sandbox before a step that may break it, check the result, and roll back if it is bad.",
				Arguments: []*sdk.PromptArgument{
					argument("sandbox_id", "sandbox to work in", true),
					argument("step", "the risky step", true),
				},
			},
			text: `Do this risky step in sandbox {sandbox_id}, so that it can be undone.

Step: {step}

1. Write down a check that shows whether the sandbox is in order, and run it now.
2. branch_sandbox {sandbox_id}, and remember the tag of the snapshot.
3. Do the step.
4. Run the check again. If it fails, rollback_sandbox {sandbox_id} to that tag, and confirm with the check.
5. If it passes, delete_snapshot that tag, unless the user wants to go back later.
6. Report the step, both results of the check, and whether you rolled back.`,
		},
		{
			prompt: sdk.Prompt{
				Name: "reproduce_bug", Title: "Reproduce a bug from a snapshot",
				Description: "Reproduce a bug again and again from the same state, and find its cause.",
				Arguments: []*sdk.PromptArgument{
					argument("bug", "what goes wrong, and how it was noticed", true),
					argument("snapshot_tag", "snapshot of the state before the bug; chosen from list_snapshots if absent", false),
				},
			},
			text: `Reproduce this bug, and find its cause.

Bug: {bug}

1. spawn_sandboxes with n 1 from snapshot {snapshot_tag}, and find a short command that shows the bug.
2. spawn_sandboxes with n 5 from the same snapshot, and run the command once in each. Note how many show the bug.
3. In one sandbox go to the moment before the bug and call branch_sandbox. Use children of that snapshot for every
   experiment, so that each begins in the same state.
4. Change one thing per child until you know the cause. snapshot_diff of branches shows what a step changed.
5. Report the command, how often it shows the bug, the cause, and the tag of the snapshot before the bug.
   kill_sandbox for what is not needed.`,
		},
	}
}

// defaults are the texts for arguments that are absent.
var defaults = map[string]string{"ways": "3", "snapshot_tag": "(choose one with list_snapshots)"}

// maxArgument limits an argument of a prompt, in bytes.
const maxArgument = 64 << 10

func addPrompts(server *sdk.Server) {
	for _, p := range patterns() {
		server.AddPrompt(&p.prompt, func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			text, err := p.fill(req.Params.Arguments)
			if err != nil {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
			}
			return &sdk.GetPromptResult{Description: p.prompt.Description, Messages: []*sdk.PromptMessage{
				{Role: "user", Content: &sdk.TextContent{Text: text}},
			}}, nil
		})
	}
}

// fill puts the arguments into the text.
func (p pattern) fill(given map[string]string) (string, error) {
	var pairs []string
	for _, a := range p.prompt.Arguments {
		value := given[a.Name]
		switch {
		case len(value) > maxArgument:
			return "", fmt.Errorf("argument %s has %d bytes, want at most %d", a.Name, len(value), maxArgument)
		case value == "" && a.Required:
			return "", fmt.Errorf("argument %s is missing", a.Name)
		case value == "":
			value = defaults[a.Name]
		}
		pairs = append(pairs, "{"+a.Name+"}", value)
	}
	return strings.NewReplacer(pairs...).Replace(p.text), nil
}
