package defaults

import "testing"

// E2B's programs look for their sandbox's id in the form of E2B's clients.
func TestTheIDThatE2BsProgramsLookFor(t *testing.T) {
	r := New(Image{})
	sent := map[string]string{"E2B_SANDBOX": "true"}
	r.Become(Clone{SandboxID: "sb-5f3a0012-0001"}, sent, "")
	if got := r.Env()["E2B_SANDBOX_ID"]; got != "sb5f3a00120001" {
		t.Errorf("the id is %q", got)
	}
	if len(sent) != 1 {
		t.Error("what was sent has changed")
	}
	r.Become(Clone{SandboxID: "sb-5f3a0012-0001"}, map[string]string{}, "")
	if got, ok := r.Env()["E2B_SANDBOX_ID"]; ok {
		t.Errorf("without being asked: %q", got)
	}
}
