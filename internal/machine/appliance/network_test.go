package appliance

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/machine/appliance/guest"
)

func ptr[T any](v T) *T { return &v }

// flagsOf returns the flags of the machine's daemon for a network.
func flagsOf(t *testing.T, n Network) string {
	t.Helper()
	args, err := n.args()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(args, " ")
}

func TestTheMachinesDaemonGetsItsNetwork(t *testing.T) {
	const host = "--net-host-address 10.0.2.2"
	for _, tc := range []struct {
		name, want string
		n          Network
	}{
		{"nothing said", host + " --net-host-port 1024-65535", Network{}},
		{"no ports", host, Network{HostPorts: []string{}}},
		{"ports", host + " --net-host-port 80 --net-host-port 8000-8999", Network{HostPorts: []string{"80", "8000-8999"}}},
		{"a private network", host + " --net-private 10.1.0.0/16", Network{HostPorts: []string{}, Private: []string{"10.1.0.0/16"}}},
		{"the host's addresses", host + " --net-own-address 93.184.216.34", Network{HostPorts: []string{}, Own: []string{"93.184.216.34"}}},
		{"a word as ceiling", host + " --net-ceiling none", Network{HostPorts: []string{}, Ceiling: "none"}},
		{"a policy as ceiling", host + " --net-ceiling /etc/forkd/ceiling.yaml",
			Network{HostPorts: []string{}, Ceiling: `{"default":"deny"}`}},
		{"a proxy", host + " --net-upstream-proxy-file /etc/forkd/upstream-proxy",
			Network{HostPorts: []string{}, Upstream: "socks5://me:geheim@a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := flagsOf(t, tc.n); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			c, err := testMachine(t).guestConfig(false, state{Network: tc.n})
			if err != nil || !strings.HasSuffix(strings.Join(c.Services[1].Args, " "), tc.want) {
				t.Errorf("its service is %q: %v", c.Services[1].Args, err)
			}
		})
	}
}

func TestWhatTheFlagsNameIsInTheMachine(t *testing.T) {
	policy := `{"default":"deny"}`
	for upstream, want := range map[string]string{
		"socks5://me:geheim@proxy.example": "socks5://me:geheim@proxy.example",
		"socks5://me:geheim@localhost":     "socks5://me:geheim@10.0.2.2:1080",
		"socks5://127.0.0.1:9050":          "socks5://10.0.2.2:9050",
		"socks5://[::1]:9050":              "socks5://10.0.2.2:9050",
	} {
		files, err := Network{Ceiling: policy, Upstream: upstream}.entries()
		if err != nil || len(files) != 2 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		for i, content := range []string{policy, want} {
			if !bytes.Equal(files[i].Data, []byte(content)) || files[i].Mode&0o777 != 0o600 {
				t.Errorf("%s has %q, mode %o; want %q", files[i].Path, files[i].Data, files[i].Mode, content)
			}
		}
	}
	for _, n := range []Network{{}, {Ceiling: "none"}, {Ceiling: "public"}} {
		if files, err := n.entries(); err != nil || len(files) != 0 {
			t.Errorf("%+v: %d files, %v", n, len(files), err)
		}
	}
}

func TestANetworkIsKeptUntilItIsChanged(t *testing.T) {
	m := testMachine(t)
	first := Network{}.changed(NetworkChange{
		Ceiling: ptr("none"), Upstream: ptr("socks5://a"), Private: ptr([]string{"10.1.0.0/16"}), HostPorts: ptr([]string{}),
	})
	if err := m.writeState(state{Network: first}); err != nil {
		t.Fatal(err)
	}
	kept, err := m.readState()
	if err != nil || !kept.Network.changed(NetworkChange{}).same(first) || kept.differs(state{Network: first}) {
		t.Errorf("kept is %+v, was %+v: %v", kept.Network, first, err)
	}
	if flagsOf(t, kept.Network) != flagsOf(t, first) {
		t.Errorf("kept ports are %v, were %v", kept.Network.HostPorts, first.HostPorts)
	}
	for name, c := range map[string]NetworkChange{
		"ceiling": {Ceiling: ptr("public")}, "proxy": {Upstream: ptr("")}, "private": {Private: ptr([]string{})},
		"ports": {HostPorts: ptr([]string{"80"})},
	} {
		next := kept
		if next.Network = kept.Network.changed(c); !next.differs(kept) {
			t.Errorf("another %s is the same network", name)
		}
	}
	var older state // of a build without network settings
	if err := json.Unmarshal([]byte(`{"digest":"x"}`), &older); err != nil || older.differs(state{Digest: "x"}) {
		t.Errorf("a state without a network differs: %+v, %v", older.Network, err)
	}
}

func TestTheMachinesDaemonGetsMoreFlags(t *testing.T) {
	m := testMachine(t)
	own := state{Serve: []string{"--audit-log=none", "--pool=2"}}
	c, err := m.guestConfig(false, own)
	if err != nil || !strings.HasSuffix(strings.Join(c.Services[1].Args, " "), " --audit-log=none --pool=2") {
		t.Errorf("its service is %q: %v", c.Services[1].Args, err)
	}
	if err := m.writeState(own); err != nil {
		t.Fatal(err)
	}
	kept, err := m.readState()
	if err != nil || kept.differs(own) || !kept.differs(state{}) {
		t.Errorf("kept is %q, %v", kept.Serve, err)
	}
	none := []string{}
	if err := m.sameAs(own, StartOptions{Serve: &none}); !errors.Is(err, ErrDiffers) {
		t.Errorf("it runs with others: %v", err)
	}
	if err := m.sameAs(own, StartOptions{Serve: &own.Serve}); err != nil {
		t.Error(err)
	}
}

func TestTheMachinesDaemonGetsItsJail(t *testing.T) {
	m := testMachine(t)
	for jail, want := range map[string]string{"": "--audit-log /data/log/audit.log --net",
		"strict": "--audit-log /data/log/audit.log --jail strict --net"} {
		c, err := m.guestConfig(false, state{Jail: jail})
		if err != nil || !strings.Contains(strings.ReplaceAll(strings.Join(c.Services[1].Args, " "), dataMount, "/data"), want) {
			t.Errorf("its service is %q: %v", c.Services[1].Args, err)
		}
	}
	if err := m.writeState(state{Jail: "best"}); err != nil {
		t.Fatal(err)
	}
	kept, err := m.readState()
	if err != nil || kept.Jail != "best" || kept.differs(state{Jail: "best"}) || !kept.differs(state{Jail: "off"}) {
		t.Errorf("kept is %q, %v", kept.Jail, err)
	}
	for jail, refused := range map[string]bool{"": false, "best": false, "strict": true} {
		if err := checkJail(jail, map[string]string{}); (err != nil) != refused {
			t.Errorf("%q without forkd-spawn: %v", jail, err)
		}
	}
	if err := checkJail("strict", map[string]string{spawnTarget: "/bin/forkd-spawn"}); err != nil {
		t.Error(err)
	}
}

// Its gateway leads to the host's loopback, so a CIDR that contains it must not open it.
func TestNoPrivateNetworkHasTheMachinesOwn(t *testing.T) {
	for _, text := range []string{"10.0.0.0/8", "10.0.2.0/23", "fc00::/7", "fd66:6f72:6b6d::/48", "10.1.0.0/16", "10.0.3.0/24"} {
		rest, err := outsideOfMachine(text)
		if err != nil {
			t.Fatal(err)
		}
		all := netip.MustParsePrefix(text)
		in := func(a netip.Addr) bool {
			return slices.ContainsFunc(rest, func(p netip.Prefix) bool { return p.Contains(a) })
		}
		for _, own := range guest.OwnNetworks() {
			for _, p := range rest {
				if p.Overlaps(own) || !all.Overlaps(p) || p.Bits() < all.Bits() {
					t.Errorf("%s opens %s", text, p)
				}
			}
			last := own.Addr().Prev() // the address before it
			if all.Contains(last) && !in(last) {
				t.Errorf("%s does not open %s", text, last)
			}
		}
		own := slices.ContainsFunc(guest.OwnNetworks(), func(p netip.Prefix) bool { return p.Contains(all.Addr()) })
		if in(all.Addr()) == own {
			t.Errorf("%s opens its first address: %v", text, in(all.Addr()))
		}
	}
	for _, text := range []string{"10.0.2.0/24", "10.0.2.2/32", "fd66:6f72:6b6d::/64", "here"} {
		if rest, err := outsideOfMachine(text); err == nil {
			t.Errorf("%s opens %v", text, rest)
		}
	}
}
