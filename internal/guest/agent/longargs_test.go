package agent_test

import (
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
)

func TestLongArgumentsNameTheLimit(t *testing.T) {
	b := startAgent(t)
	fits := strings.Repeat("x", 128<<10-1)
	_, err := b.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"true", "a", fits}})
	if err != nil {
		t.Errorf("an argument at the limit: %v", err)
	}
	for want, args := range map[string][]string{
		"argument 2 is 131072 bytes, and Linux takes at most 131071: pass it on stdin or in a file": {"true", "a", fits + "x"},
		"a quarter of the stack limit": append([]string{"true"}, slices.Repeat([]string{fits}, 60)...),
	} {
		_, err := b.Exec(t.Context(), agentclient.ExecRequest{Args: args})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		wantCode(t, err, connect.CodeInvalidArgument)
	}
}
