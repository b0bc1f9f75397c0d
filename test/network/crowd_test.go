package network

import (
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/test/harness"
)

// crowd returns the number of children forked together: in a soak a hundred, which takes a minute
// and a half.
func crowd() int {
	if harness.Soaking() {
		return 100
	}
	return 20
}

// eager connects without pauses. Each clone stops after one connection of its own. It recognises
// itself by the hostname from its identity, and checks it before it connects, because an inherited
// connection may already have succeeded.
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

// The guest sends all the time. Its many children must send no packet to the outside before their
// identities are unique.
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
