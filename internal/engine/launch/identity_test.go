package launch

import (
	"testing"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// Each failure is reported once, and a guest's text cannot reach a terminal as a command.
func TestWhatAnIncompleteIdentityIsCalled(t *testing.T) {
	hook := func(name string, code int32, err, out string) *agentv1.HookResult {
		return &agentv1.HookResult{Name: name, ExitCode: code, Error: err, Output: out}
	}
	for _, c := range []struct {
		name, want string
		answer     *agentv1.IdentityResponse
	}{
		{"complete", "", &agentv1.IdentityResponse{KernelReseeded: true, Hooks: []*agentv1.HookResult{hook("10-good", 0, "", "hello")}}},
		{"not reseeded", "the kernel's random state was not reseeded", &agentv1.IdentityResponse{}},
		{"a step", "clock: not permitted", &agentv1.IdentityResponse{
			KernelReseeded: true, Steps: []*agentv1.IdentityStep{{Name: "clock", Error: "not permitted"}},
		}},
		{"a hook", "hook 20-bad: exit code 3; it said: sorry", &agentv1.IdentityResponse{
			KernelReseeded: true, Steps: []*agentv1.IdentityStep{{Name: "hooks", Error: "hook 20-bad: exit status 3"}},
			Hooks: []*agentv1.HookResult{hook("10-good", 0, "", ""), hook("20-bad", 3, "exit status 3", "\x1bsorry\n")},
		}},
		{"a hook without an end", "hook 30-slow: ran longer than 5s", &agentv1.IdentityResponse{
			KernelReseeded: true, Hooks: []*agentv1.HookResult{hook("30-slow", -1, "ran longer than 5s", "")},
		}},
		{"hooks that cannot be listed", "hooks: too many", &agentv1.IdentityResponse{
			KernelReseeded: true, Steps: []*agentv1.IdentityStep{{Name: "hooks", Error: "too many"}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if err := checkIdentity(c.answer); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
