package fleet

import (
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

func TestAForkIsTriedAgainALimitedNumberOfTimes(t *testing.T) {
	f, o := New(nil), Owner{UID: "uid"}
	failed := func(code api.Code) client.ForkResult {
		return client.ForkResult{Sandboxes: []api.SandboxInfo{{ID: "sb-a"}, {Error: "no", Code: code}}}
	}
	if f.again(o, failed(api.CodeNoMemory)) {
		t.Error("a refused child is tried again")
	}
	for try := range maxAgain {
		if !f.again(o, failed(api.CodeTimeout)) {
			t.Errorf("attempt %d was the last", try+1)
		}
	}
	if f.again(o, failed(api.CodeTimeout)) {
		t.Error("attempts have no limit")
	}
}
