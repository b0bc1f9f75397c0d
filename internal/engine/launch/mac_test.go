package launch

import (
	"fmt"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guestnet"
)

func TestHardwareAddresses(t *testing.T) {
	seen := map[string]string{}
	for i := range 10_000 {
		id := fmt.Sprintf("sb-%d", i)
		mac := MAC(id)
		if len(mac) != 6 || mac[0]&0x01 != 0 || mac[0]&0x02 == 0 || guestnet.Reserved(mac) {
			t.Fatalf("%s is %s: not that of one station of ours", id, mac)
		}
		if other, there := seen[mac.String()]; there {
			t.Fatalf("%s and %s are both %s", id, other, mac)
		}
		seen[mac.String()] = id
	}
	// Running guests have this address: a changed algorithm would change it at a rollback.
	if got := MAC("sb-1").String(); got != "32:7d:4f:3d:f1:c6" {
		t.Errorf("sb-1 is %s", got)
	}
}

func TestAnIdentityHasAHardwareAddress(t *testing.T) {
	l := New(Config{Random: func(n int) ([]byte, error) { return make([]byte, n), nil }})
	req, err := l.identity(&VM{}, sandbox.Identity{ID: "sb-1"})
	if err != nil {
		t.Fatal(err)
	}
	n := req.GetNetwork()
	if string(n.GetHardwareAddress()) != string(MAC("sb-1")) {
		t.Errorf("it is %x", n.GetHardwareAddress())
	}
	// The rest of its network comes from the plan, and is in the snapshot.
	if n.GetGateway() != "" || len(n.GetAddresses()) > 0 || len(n.GetDns()) > 0 || n.GetMtu() != 0 {
		t.Errorf("it asks for more: %v", n)
	}
}
