package network

import (
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/test/harness"
)

// crowd is how many children are forked at once: in a soak a hundred, which takes a minute and a half.
func crowd() int {
	if harness.Soaking() {
		return 100
	}
	return 20
}

// eager connects without a rest. A clone of it is content with one connection of its own: it knows
// itself by the name that it was given with its identity, and looks at that before it connects, as what
// it inherited may be a connection that is through already.
const eager = `
def call():
    born = socket.gethostname()
    while eager_on:
        try:
            clone = socket.gethostname() != born
            dial("` + web + `", ` + echoPort + `).close()
            if clone:
                return
        except OSError:
            pass
        time.sleep(0.02)

eager_on = True
threading.Thread(target=call, daemon=True).start()`

// Children by the dozen whose guests send from their first instruction on: nothing of any of them is
// seen outside before it is one of a kind.
func TestACrowdSendsNothingBeforeItsIdentities(t *testing.T) {
	w := shared(t, web)
	w.run(t, w.guest, eager)
	children := w.branch(t, w.guest, api.BranchRequest{Tag: "crowd", Mode: api.BranchLive, N: crowd()})
	w.run(t, w.guest, "eager_on = False")
	if len(children) != crowd() {
		t.Fatalf("there are %d children", len(children))
	}
	for id, err := range w.early(t, ids(children)) {
		t.Errorf("%s: %v", id, err)
	}
}
