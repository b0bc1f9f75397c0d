package arch

import (
	"strings"
	"testing"
)

const engine = "internal/engine"

// rooms are the engine's, by the floor that they are on. A room imports those on lower floors
// only: not its neighbours, and nothing above it. The engine itself is the roof.
var rooms = map[string]int{
	"op": 4, "pool": 4,
	"guestfork":  4, // operations make guests' forks: it is handed them, as an interface
	"life":       4, // when sandboxes end or are paused: it is handed the operations, too
	"arrivals":   3, // snapshots that are used before they have arrived whole
	"guesttoken": 3, // identity tokens of guests
	"guest":      3, // requests to a running guest; operations use them
	"policies":   3, // what is asked about sandboxes' networks
	"launch":     2, "catalog": 2, "sandboxes": 2,
	"home":       2, // directories, locks and stores
	"vmproc":     1,
	"admission":  1,        // whether the host has what a VM needs
	"network":    1,        // wires to forkd-net
	"trust":      0,        // a certificate into a guest: a leaf, as it knows files only
	"sched":      0,        // who goes first: a leaf that every room may import
	"settings":   0,        // what an engine is told
	"bootable":   0,        // images of a store, for `forkd serve`
	"enginetest": 0,        // the suite that the engine and its fakes pass
	"enginefake": roof + 1, // hosts and VMMs for the tests of the rooms
}

const roof = 5

// floor is that of the room that a package is, or is in.
func floor(t *testing.T, name string) (room string, floor int) {
	t.Helper()
	if name == engine {
		return "", roof
	}
	room, _, _ = strings.Cut(strings.TrimPrefix(name, engine+"/"), "/")
	floor, known := rooms[room]
	if !known {
		t.Errorf("%s is in no room of the engine: name its floor here, and draw it in docs/architecture.md", name)
	}
	return room, floor
}

// longestFacade is how many lines the facade's files have together, tests apart: it admits, wires
// and runs workers. What is more belongs to a room.
const longestFacade = 400

func TestTheFacadeIsThin(t *testing.T) {
	lines := 0
	for _, s := range sources(t) {
		if s.pkg.name() == engine {
			lines += s.fset.File(s.file.Pos()).LineCount()
		}
	}
	if lines == 0 || lines > longestFacade {
		t.Errorf("%s has %d lines, want 1 to %d: which room does what was added belong to?", engine, lines, longestFacade)
	}
}

func TestRoomsOfTheEngineImportDownwardsOnly(t *testing.T) {
	for _, p := range packages(t) {
		if !isOneOf(p.name(), []string{engine}) {
			continue
		}
		room, at := floor(t, p.name())
		for _, imp := range p.Imports {
			if !isOneOf(short(imp), []string{engine}) {
				continue
			}
			if other, below := floor(t, short(imp)); other != room && below >= at {
				t.Errorf("%s imports %s, which is not below it", p.name(), short(imp))
			}
		}
	}
}

// The catalog asks for what it must know of sandboxes; it does not look.
func TestTheCatalogKnowsNoVMs(t *testing.T) {
	not := []string{"internal/vm/vmm", "internal/vm/vmctl", "internal/guest/agentproto", "internal/sys/rundir", "net/http"}
	for _, p := range packages(t) {
		if p.name() != engine+"/catalog" {
			continue
		}
		for _, d := range p.Imports {
			if isOneOf(short(d), not) {
				t.Errorf("%s imports %s", p.name(), d)
			}
		}
	}
}
