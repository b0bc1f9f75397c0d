package flows

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/vm/virtio"
)

var (
	guestMAC = [6]byte{2, 0, 0, 0, 0, 2}
	peerMAC  = [6]byte{2, 0, 0, 0, 0, 1}
)

// clock is a table's clock.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func newTable() (*Table, *clock) {
	c := &clock{time.Unix(1000, 0)}
	return New(c.now), c
}

// side is an end of a flow.
type side struct {
	mac  [6]byte
	addr netip.AddrPort
}

func ends(guest, far string) (g, f side) {
	return side{guestMAC, netip.MustParseAddrPort(guest)}, side{peerMAC, netip.MustParseAddrPort(far)}
}

func ends4() (g, f side) { return ends("192.0.0.2:1000", "198.51.100.7:443") }
func ends6() (g, f side) { return ends("[fd66::2]:1000", "[2001:db8::7]:443") }

// ip returns an IP packet in a frame.
func ip(src, dst side, proto uint8, body []byte) []byte {
	b := append(append([]byte{}, dst.mac[:]...), src.mac[:]...)
	be := binary.BigEndian
	if src.addr.Addr().Is4() {
		b = be.AppendUint16(b, typeIPv4)
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, 64, proto
		be.PutUint16(h[2:], uint16(20+len(body)))
		copy(h[12:], src.addr.Addr().AsSlice())
		copy(h[16:], dst.addr.Addr().AsSlice())
		return append(append(b, h...), body...)
	}
	b = be.AppendUint16(b, typeIPv6)
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, proto, 64
	be.PutUint16(h[4:], uint16(len(body)))
	copy(h[8:], src.addr.Addr().AsSlice())
	copy(h[24:], dst.addr.Addr().AsSlice())
	return append(append(b, h...), body...)
}

func tcp(src, dst side, flags uint8, seq, ack uint32, n int) []byte {
	b := make([]byte, tcpSize+n)
	be := binary.BigEndian
	be.PutUint16(b, src.addr.Port())
	be.PutUint16(b[2:], dst.addr.Port())
	be.PutUint32(b[4:], seq)
	be.PutUint32(b[8:], ack)
	b[12], b[13] = 5<<4, flags
	return ip(src, dst, protoTCP, b)
}

func udp(src, dst side, n int) []byte {
	b := make([]byte, udpSize+n)
	binary.BigEndian.PutUint16(b, src.addr.Port())
	binary.BigEndian.PutUint16(b[2:], dst.addr.Port())
	return ip(src, dst, protoUDP, b)
}

// clone returns the table of a guest that was restored from this table's state.
func clone(t *testing.T, from *Table) (*Table, *clock) {
	t.Helper()
	var w virtio.StateWriter
	from.Save(&w)
	to, c := newTable()
	if err := to.Restore(virtio.NewStateReader(w.Bytes())); err != nil {
		t.Fatal(err)
	}
	return to, c
}

// reset is a reset received by a guest.
type reset struct {
	to       netip.AddrPort
	seq, ack uint32
}

// resets takes all resets of a table, and checks them like a guest's kernel.
func resets(t *testing.T, table *Table) (out []reset) {
	t.Helper()
	for {
		frame := table.Reset(guestMAC)
		if frame == nil {
			return out
		}
		p, ok := parse(frame, false)
		if !ok || p.proto != protoTCP || p.flags != flagRST|flagACK || p.payload != 0 {
			t.Fatalf("% x is no reset", frame)
		}
		if [6]byte(frame) != guestMAC || [6]byte(frame[6:]) != peerMAC {
			t.Errorf("from %x to %x", frame[6:12], frame[:6])
		}
		checkSums(t, frame, &p)
		out = append(out, reset{netip.AddrPortFrom(netip.AddrFrom16(p.key.guest).Unmap(), p.key.guestPort), p.seq, p.ack})
		table.ResetDone()
	}
}

// checkSums checks a frame's checksums.
func checkSums(t *testing.T, frame []byte, p *packet) {
	t.Helper()
	if p.key.v4() && fold(sum(frame[etherSize:][:ipv4Size])) != 0xffff {
		t.Errorf("wrong header checksum in % x", frame)
	}
	body := frame[p.l4:]
	if fold(pseudo(&p.key, p.proto, len(body))+sum(body)) != 0xffff {
		t.Errorf("wrong checksum in % x", frame)
	}
}

func expect(t *testing.T, got []reset, want ...reset) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("resets %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("reset %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// open makes the guest connect.
func open(table *Table, g, f side) {
	table.Sent(tcp(g, f, flagSYN, 100, 0, 0))
	table.Delivered(tcp(f, g, flagSYN|flagACK, 9000, 101, 0))
	table.Sent(tcp(g, f, flagACK, 101, 9001, 0))
}

func TestACloneResetsWhatItsSourceHasOpen(t *testing.T) {
	for name, ends := range map[string]func() (side, side){"IPv4": ends4, "IPv6": ends6} {
		g, f := ends()
		for _, c := range []struct {
			name string
			do   func(table *Table)
			want []reset
		}{
			{"nothing", func(*Table) {}, nil},
			{"a connection that is being opened", func(table *Table) {
				table.Sent(tcp(g, f, flagSYN, 100, 0, 0))
			}, []reset{{g.addr, 0, 101}}},
			{"one whose answer is on its way up", func(table *Table) {
				table.Sent(tcp(g, f, flagSYN, 100, 0, 0))
				table.Delivered(tcp(f, g, flagSYN|flagACK, 9000, 101, 0))
			}, []reset{{g.addr, 9001, 101}}},
			{"an idle one", func(table *Table) { open(table, g, f) }, []reset{{g.addr, 9001, 101}}},
			{"one that has sent", func(table *Table) {
				open(table, g, f)
				table.Sent(tcp(g, f, flagACK, 101, 9001, 500))
				table.Sent(tcp(g, f, flagACK, 101, 9001, 20)) // again
			}, []reset{{g.addr, 9001, 601}}},
			{"one that has acknowledged all", func(table *Table) {
				open(table, g, f)
				table.Delivered(tcp(f, g, flagACK, 9001, 101, 1000))
				table.Sent(tcp(g, f, flagACK, 101, 10001, 0))
			}, []reset{{g.addr, 10001, 101}}},
			{"one that has not yet, and may have dropped it", func(table *Table) {
				open(table, g, f)
				table.Delivered(tcp(f, g, flagACK, 9001, 101, 1000))
				table.Delivered(tcp(f, g, flagACK, 10001, 101, 1000))
			}, []reset{{g.addr, 11001, 101}, {g.addr, 9001, 101}}},
			{"one with a gap", func(table *Table) {
				open(table, g, f)
				table.Delivered(tcp(f, g, flagACK, 10001, 101, 1000))
			}, []reset{{g.addr, 9001, 101}}},
			{"one that the far end has closed", func(table *Table) {
				open(table, g, f)
				table.Delivered(tcp(f, g, flagACK|flagFIN, 9001, 101, 10))
				table.Sent(tcp(g, f, flagACK, 101, 9012, 0))
			}, []reset{{g.addr, 9012, 101}}},
			{"one that both have closed", func(table *Table) {
				open(table, g, f)
				table.Sent(tcp(g, f, flagACK|flagFIN, 101, 9001, 0))
				table.Delivered(tcp(f, g, flagACK|flagFIN, 9001, 102, 0))
				table.Sent(tcp(g, f, flagACK, 102, 9002, 0))
			}, nil},
			{"one that both have closed, the far end first", func(table *Table) {
				open(table, g, f)
				table.Delivered(tcp(f, g, flagACK|flagFIN, 9001, 101, 0))
				table.Sent(tcp(g, f, flagACK|flagFIN, 101, 9002, 0))
				table.Delivered(tcp(f, g, flagACK, 9002, 102, 0))
			}, nil},
			{"one that the far end has reset", func(table *Table) {
				open(table, g, f)
				table.Delivered(tcp(f, g, flagRST, 9001, 0, 0))
			}, nil},
			{"one that the guest has reset", func(table *Table) {
				open(table, g, f)
				table.Sent(tcp(g, f, flagRST, 101, 0, 0))
			}, nil},
			{"one that was opened anew", func(table *Table) {
				open(table, g, f)
				table.Sent(tcp(g, f, flagSYN, 77, 0, 0))
			}, []reset{{g.addr, 0, 78}}},
			{"one of which the beginning was not seen", func(table *Table) {
				table.Sent(tcp(g, f, flagACK, 101, 9001, 10))
			}, []reset{{g.addr, 9001, 111}}},
			{"one whose numbers wrap", func(table *Table) {
				table.Sent(tcp(g, f, flagACK, 0xffffff00, 0xffffff00, 0x200))
				table.Delivered(tcp(f, g, flagACK, 0xffffff00, 0x100, 0x200))
				table.Sent(tcp(g, f, flagACK, 0x100, 0x100, 0))
			}, []reset{{g.addr, 0x100, 0x100}}},
			{"one that the far end opens", func(table *Table) {
				table.Delivered(tcp(f, g, flagSYN, 9000, 0, 0))
				table.Sent(tcp(g, f, flagSYN|flagACK, 100, 9001, 0))
			}, []reset{{g.addr, 9001, 101}}},
			{"a stray segment of the far end", func(table *Table) {
				table.Delivered(tcp(f, g, flagACK, 9000, 1, 5))
			}, nil},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				table, _ := newTable()
				c.do(table)
				child, _ := clone(t, table)
				expect(t, resets(t, child), c.want...)
				if table.Reset(guestMAC) != nil {
					t.Error("the source resets its own")
				}
				grandchild, _ := clone(t, child)
				expect(t, resets(t, grandchild))
			})
		}
	}
}

// A VM saved before its guest has received the resets passes them on.
func TestResetsThatWaitAreSaved(t *testing.T) {
	g, f := ends4()
	table, _ := newTable()
	open(table, g, f)
	child, _ := clone(t, table)
	grandchild, _ := clone(t, child)
	expect(t, resets(t, grandchild), reset{g.addr, 9001, 101})
}

func TestTheOldestConnectionMakesRoom(t *testing.T) {
	table, _ := newTable()
	far := side{peerMAC, netip.MustParseAddrPort("198.51.100.7:443")}
	addr := netip.MustParseAddr("192.0.0.2")
	for port := range uint16(MaxTCP + 10) {
		table.Sent(tcp(side{guestMAC, netip.AddrPortFrom(addr, port)}, far, flagSYN, 1, 0, 0))
		table.Sent(tcp(side{guestMAC, netip.AddrPortFrom(addr, 3)}, far, flagSYN, 1, 0, 0)) // used all the time
	}
	child, _ := clone(t, table)
	got := resets(t, child)
	if len(got) != MaxTCP || len(table.connections.all) != MaxTCP {
		t.Fatalf("%d resets, %d places", len(got), len(table.connections.all))
	}
	seen := map[uint16]bool{}
	for _, r := range got {
		seen[r.to.Port()] = true
	}
	if !seen[3] || seen[4] || !seen[MaxTCP+9] {
		t.Errorf("port 3 %v, 4 %v, last %v", seen[3], seen[4], seen[MaxTCP+9])
	}
}

func TestInheritedSessionsAreQuarantined(t *testing.T) {
	for name, ends := range map[string]func() (side, side){"IPv4": ends4, "IPv6": ends6} {
		t.Run(name, func(t *testing.T) {
			g, f := ends()
			table, _ := newTable()
			table.Sent(udp(g, f, 30))
			if _, pass := table.Sent(udp(g, f, 30)); !pass {
				t.Fatal("the source's own session is stopped")
			}
			child, now := clone(t, table)
			now.t = now.t.Add(time.Hour) // it stands ready and unused
			child.Start()
			for range 3 {
				now.t = now.t.Add(Quarantine - time.Second)
				question := udp(g, f, 300)
				answer, pass := child.Sent(question)
				if pass {
					t.Fatal("a clone's datagram went out")
				}
				checkUnreachable(t, answer, question, f)
			}
			grandchild, _ := clone(t, child)
			if _, pass := grandchild.Sent(udp(g, f, 1)); pass {
				t.Error("a clone of a clone may use it")
			}
			other := g
			other.addr = netip.AddrPortFrom(g.addr.Addr(), 1001)
			if _, pass := child.Sent(udp(other, f, 30)); !pass {
				t.Error("a session of its own is stopped")
			}
			now.t = now.t.Add(Quarantine)
			if _, pass := child.Sent(udp(g, f, 30)); !pass {
				t.Error("the quarantine does not end")
			}
		})
	}
}

// checkUnreachable checks the answer to a datagram.
func checkUnreachable(t *testing.T, answer, question []byte, far side) {
	t.Helper()
	if [6]byte(answer) != guestMAC || [6]byte(answer[6:]) != peerMAC {
		t.Errorf("from %x to %x", answer[6:12], answer[:6])
	}
	ip := answer[etherSize:]
	var b []byte
	if far.addr.Addr().Is4() {
		if b = ip[ipv4Size:]; b[0] != 3 || b[1] != 3 || netip.AddrFrom4([4]byte(ip[12:])) != far.addr.Addr() {
			t.Errorf("answer % x", answer)
		}
		if fold(sum(b)) != 0xffff || fold(sum(ip[:ipv4Size])) != 0xffff || int(binary.BigEndian.Uint16(ip[2:])) != len(ip) {
			t.Errorf("wrong checksum or length in % x", answer)
		}
	} else {
		if b = ip[ipv6Size:]; b[0] != 1 || b[1] != 4 || netip.AddrFrom16([16]byte(ip[8:])) != far.addr.Addr() {
			t.Errorf("answer % x", answer)
		}
		k := key{guest: [16]byte(ip[24:]), far: [16]byte(ip[8:])}
		if fold(pseudo(&k, protoICMPv6, len(b))+sum(b)) != 0xffff || int(binary.BigEndian.Uint16(ip[4:])) != len(b) {
			t.Errorf("wrong checksum or length in % x", answer)
		}
	}
	if got := string(b[icmpSize:]); got != string(question[etherSize:][:len(got)]) || len(got) < ipv6Size+udpSize {
		t.Errorf("quotes % x", got)
	}
}

// Traffic between the guest and its gateway is not shared with the source, and a repeated DNS
// question must be answered.
func TestSessionsOnTheWireAreNotInherited(t *testing.T) {
	table, _ := newTable()
	var frames [][]byte
	for _, e := range [][2]string{
		{"192.0.0.2:1000", "192.0.0.1:53"}, {"192.0.0.2:1", "255.255.255.255:67"}, {"192.0.0.2:1", "224.0.0.251:5353"},
		{"[fe80::2]:1000", "[fe80::1]:53"}, {"[fe80::2]:1", "[ff02::fb]:5353"},
	} {
		g, f := ends(e[0], e[1])
		frames = append(frames, udp(g, f, 1))
	}
	for _, f := range frames {
		table.Sent(f)
	}
	child, _ := clone(t, table)
	child.Start()
	for _, f := range frames {
		if _, pass := child.Sent(f); !pass {
			t.Errorf("% x is stopped", f)
		}
	}
}

func TestSessionsThatAreOverAreNotInherited(t *testing.T) {
	g, f := ends4()
	table, now := newTable()
	table.Sent(udp(g, f, 1))
	now.t = now.t.Add(Quarantine)
	child, _ := clone(t, table)
	child.Start()
	if _, pass := child.Sent(udp(g, f, 1)); !pass {
		t.Error("it is stopped")
	}
}

// fill gives a table the maximum number of flows, of the kind with the largest encoding.
func fill(table *Table) {
	far := side{peerMAC, netip.MustParseAddrPort("[2001:db8::7]:443")}
	for port := range uint16(MaxTCP + 1) {
		g := side{guestMAC, netip.AddrPortFrom(netip.MustParseAddr("fd66::2"), port)}
		table.Sent(tcp(g, far, flagACK, 1, 1, 0))
		table.Sent(udp(g, far, 0))
	}
}

// A full table's state fits into a device's section, together with the transport's.
func TestAFullTableIsSaved(t *testing.T) {
	table, _ := newTable()
	fill(table)
	var w virtio.StateWriter
	table.Save(&w)
	if n := len(w.Bytes()); n > virtio.MaxStateBytes-1024 {
		t.Errorf("%d bytes", n)
	}
	child, _ := clone(t, table)
	fill(child) // and as many of its own
	grandchild, _ := clone(t, child)
	if n := len(resets(t, grandchild)); n != MaxTCP {
		t.Errorf("%d resets", n)
	}
	if n := grandchild.quarantine.len(); n != MaxUDP {
		t.Errorf("%d sessions", n)
	}
}

func TestFramesOfNoFlow(t *testing.T) {
	g, f := ends4()
	g6, f6 := ends6()
	fragment := udp(g, f, 8)
	fragment[etherSize+7] = 1
	mapped := udp(g6, f6, 8)
	copy(mapped[etherSize+8:], netip.MustParseAddr("::ffff:1.2.3.4").AsSlice())
	loop := ip(g6, f6, extDestination, make([]byte, 800))
	for i := range 100 {
		loop[etherSize+ipv6Size+8*i] = extDestination
	}
	for name, frame := range map[string][]byte{
		"empty": nil, "ARP": append(make([]byte, 12), 8, 6), "a later fragment": fragment, "mapped addresses": mapped,
		"headers without end": loop, "cut short": tcp(g, f, flagSYN, 1, 0, 0)[:40], "half a UDP header": udp(g, f, 0)[:38],
	} {
		table, _ := newTable()
		if _, pass := table.Sent(frame); !pass {
			t.Errorf("%s: stopped", name)
		}
		table.Delivered(frame)
		if table.connections.len()+table.sessions.len() != 0 {
			t.Errorf("%s: followed", name)
		}
	}
}

func TestExtensionHeadersAreWalkedThrough(t *testing.T) {
	g, f := ends6()
	plain := udp(g, f, 8)
	body := append([]byte{extDestination, 0, 0, 0, 0, 0, 0, 0, extFragment, 1}, make([]byte, 14)...)
	body = append(body, protoUDP, 0, 0, 1, 0, 0, 0, 0) // the first fragment
	table, _ := newTable()
	table.Sent(ip(g, f, extHopByHop, append(body, plain[etherSize+ipv6Size:]...)))
	if table.sessions.len() != 1 {
		t.Error("not followed")
	}
}

func TestFollowingDoesNotAllocate(t *testing.T) {
	g, f := ends4()
	table, _ := newTable()
	open(table, g, f)
	up, down := tcp(g, f, flagACK, 101, 9001, 100), tcp(f, g, flagACK, 9001, 101, 100)
	table.Sent(udp(g, f, 1))
	if n := testing.AllocsPerRun(100, func() {
		table.Sent(up)
		table.Delivered(down)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestConnectionsToMembersThatAreKept(t *testing.T) {
	table, _ := newTable()
	guest, member := ends("192.0.0.2:1000", "192.0.0.66:5432")
	_, outside := ends("192.0.0.2:1000", "198.51.100.7:443")
	for _, far := range []side{member, outside} {
		table.Sent(tcp(guest, far, flagSYN, 100, 0, 0))
		table.Delivered(tcp(far, guest, flagSYN|flagACK, 200, 101, 0))
		table.Sent(tcp(guest, far, flagACK, 101, 201, 0))
	}
	copied, _ := clone(t, table)
	copied.Keep(netip.MustParsePrefix("192.0.0.64/26"))
	copied.Sent(tcp(guest, member, flagACK, 101, 201, 7)) // it is the copy's own now
	if got := resets(t, copied); len(got) != 1 || got[0].seq != 201 || got[0].to != guest.addr {
		t.Errorf("the copy's resets are %+v, want one for the connection to the outside", got)
	}
	child, _ := clone(t, copied) // a plain fork of a branch of the copy
	if got := resets(t, child); len(got) != 1 || got[0].ack != 108 {
		t.Errorf("the resets of the copy's child are %+v, want one for the connection to the member", got)
	}
}
