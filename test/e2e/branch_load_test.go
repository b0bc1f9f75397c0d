package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// startStamping starts two threads. One stamps every page of a buffer with the number of its sweep,
// slowly and in order. The other writes over a second buffer as fast as it can, so a live branch
// needs pre-copy rounds.
const startStamping = `
import struct, threading
stamps, noise = bytearray(1024 * 4096), bytearray(4 << 20)
def stamping():
    sweep = 0
    while True:
        sweep += 1
        for page in range(1024):
            struct.pack_into('q', stamps, page * 4096, sweep)
            if page % 4 == 3:
                time.sleep(0.01)
def making_noise():
    n = 0
    while True:
        n = (n + 1) & 255
        noise[::4096] = bytes([n]) * 1024
        time.sleep(0.01)
for f in stamping, making_noise:
    threading.Thread(target=f, daemon=True).start()
`

// readStamps prints how often the stamp changes from one page to the next, and the sum of the
// changes. The copy is one step for the interpreter, so no stamp is written during it.
const readStamps = `
copy = bytes(stamps)
seen = [struct.unpack_from('q', copy, page * 4096)[0] for page in range(1024)]
drops = sum(a != b for a, b in zip(seen, seen[1:]))
`

// stamped checks that a sandbox's memory is of one instant: pages passed by the sweep have its
// number, the others have the number of the sweep before. An older page is a lost write.
func (d *daemon) stamped(who, id string) {
	d.t.Helper()
	d.eval(id, readStamps)
	said := strings.Fields(strings.Trim(d.eval(id, "f'{drops} {seen[0] - seen[-1]} {seen[0]}'"), "'"))
	if len(said) != 3 {
		d.t.Fatalf("%s answered %q", who, said)
	}
	drops, _ := strconv.Atoi(said[0])
	if drops > 1 || said[1] != "0" && said[1] != "1" || said[2] == "0" {
		d.t.Errorf("%s: the stamps change %d times, by %s in all (at sweep %s): pages of different instants", who, drops, said[1], said[2])
	}
}

// Under write load, over many branches in a row and branches of branches, no child has a page older
// than the instant of its branch, and the source loses no write.
func TestBranchesUnderWriteLoad(t *testing.T) {
	kvmtest.Soak(t) // short forms: TestBranch, and the oracle's sequences
	d := shared(t)
	d.unchanged()
	source := d.fork(1)[0].ID
	d.eval(source, startStamping)
	d.eval(source, "time.sleep(2)")
	for i, mode := range []api.BranchMode{api.BranchLive, api.BranchDiff, api.BranchLive, api.BranchFull} {
		child := d.branch(source, api.BranchRequest{Mode: mode, N: 1}).Children[0].ID
		d.stamped("child "+strconv.Itoa(i)+", "+string(mode), child)
		d.stamped("the source", source)
		if i == 0 { // a branch of a branch, and again of that one
			for range 2 {
				grandchild := d.branch(child, api.BranchRequest{N: 1}).Children[0].ID
				d.stamped("grandchild", grandchild)
				d.kill(child)
				child = grandchild
			}
		}
		d.kill(child) // it writes like its source, and the next needs the CPUs
	}
}
