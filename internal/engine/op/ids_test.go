package op

import (
	"bytes"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

func TestIdsOfNewSandboxesCarryTheKeyOfTheNode(t *testing.T) {
	random := func(n int) ([]byte, error) { return bytes.Repeat([]byte{7}, n), nil }
	for _, key := range []sandbox.NodeKey{"", sandbox.NodeKeyOf("node-a")} {
		ids, err := newIDs(&Ops{cfg: &Config{NodeKey: key}, random: random}, 2)
		if err != nil || len(ids) != 2 {
			t.Fatal(ids, err)
		}
		for _, id := range ids {
			if !sandbox.ValidID(id) || sandbox.NodeKeyIn(id) != key {
				t.Errorf("with the key %q: %s", key, id)
			}
		}
	}
}
