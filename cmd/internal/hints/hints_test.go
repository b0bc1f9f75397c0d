package hints

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

func TestEveryReasonHasItsHint(t *testing.T) {
	table := byReason()
	for _, row := range api.Reasons() {
		if table[row.Reason] == "" {
			t.Errorf("there is no hint for reason %s", row.Reason)
		}
		delete(table, row.Reason)
	}
	for reason := range table {
		if !strings.HasPrefix(string(reason), "machine_") {
			t.Errorf("reason %s is not the API's", reason)
		}
	}
}

func TestHintOf(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"a reason of the client", &client.Error{Code: api.CodeBroken, Reason: api.ReasonMaybeDone}, "`forkd ps`"},
		{"with its details", &client.Error{
			Reason: api.ReasonGuestDirectoryMissing, Details: map[string]string{"sandbox": "sb-1", "directory": "/a/{sandbox}"},
		}, "create it with `forkd exec sb-1 -- mkdir -p /a/{sandbox}`"},
		{"a sandbox at its disk limit", &client.Error{Reason: api.ReasonDiskLimit, Details: map[string]string{"sandbox": "sb-1"}},
			"`forkd rollback sb-1 TAG`, or kill it and fork with a higher limit (`forkd fork TAG --disk-limit-mib N`)"},
		{"nobody answers", &client.Error{Code: api.CodeUnreachable}, "`forkd serve`"},
		{"the agent's code says nothing about snapshots", &client.Error{Code: api.CodeNotFound, Status: 404}, ""},
		{"advice of its own", fmt.Errorf("x: %w", With(&client.Error{Code: api.CodeUnreachable}, "wait")), "wait"},
		{"none", errors.New("x"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Of(c.err); !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("the hint is %q, want %q", got, c.want)
			}
		})
	}
}

// The table and the daemon choose the names of details. A name no code fills would be printed.
func TestDetailsThatHintsName(t *testing.T) {
	known := []string{"{tag}", "{tags}", "{sandbox}", "{directory}", "{machine}", "{log}", "{port}", "{quota}", "{scope}", "{secret}"}
	for reason, hint := range byReason() {
		for _, name := range known {
			hint = strings.ReplaceAll(hint, name, "")
		}
		if strings.ContainsAny(hint, "{}") {
			t.Errorf("%s: unknown detail in %q", reason, hint)
		}
	}
}
