package client

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Events and statuses may overtake each other: the newest counts. Text from a VMM cannot control a
// terminal, and an invalid report breaks the protocol.
func TestTheNewestWordOnTheDisksCounts(t *testing.T) {
	p := &Process{}
	if err := p.health.heard(wire.Message{Body: json.RawMessage(`{"seq":1,"full":"a\u001b[31m"}`)}); err != nil {
		t.Fatal(err)
	}
	var told []vmm.Health
	p.OnHealth(func(h vmm.Health) { told = append(told, h) })
	p.health.note(vmm.Health{Seq: 3, Lost: "c"})
	p.health.note(vmm.Health{Seq: 2, Full: "b"})
	want := []vmm.Health{{Seq: 1, Full: "a�[31m"}, {Seq: 3, Lost: "c"}}
	if !slices.Equal(told, want) {
		t.Errorf("told %+v, want %+v", told, want)
	}
	if err := p.health.heard(wire.Message{Body: json.RawMessage(`{"seq":"x"}`)}); !errors.Is(err, errBroken) {
		t.Errorf("nonsense: %v", err)
	}
}
