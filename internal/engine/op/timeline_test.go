package op

import (
	"testing"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/steps"
)

func TestAGuestReportsABoundedNumberOfSteps(t *testing.T) {
	var answer []*agentv1.IdentityStep
	for i := range steps.MaxReported + 5 {
		answer = append(answer, &agentv1.IdentityStep{Name: "step", TookNs: int64(i)})
	}
	got := reported(answer)
	if len(got) != steps.MaxReported {
		t.Fatalf("%d steps, want %d", len(got), steps.MaxReported)
	}
	for i, s := range got {
		if s.Name != "step" || s.Took != time.Duration(i) {
			t.Errorf("step %d is %+v", i, s)
		}
	}
	if got := reported(nil); len(got) > 0 {
		t.Errorf("an answer without steps has %v", got)
	}
}
