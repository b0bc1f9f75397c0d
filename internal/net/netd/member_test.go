package netd_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
)

const (
	fin, syn, rst, ack = 1, 2, 4, 16
	linkHeader         = 12 + 14
)

var (
	guestIP = netip.MustParseAddr("192.0.0.2")
	webIP   = netip.MustParseAddr("192.0.0.65")
	dbIP    = netip.MustParseAddr("192.0.0.66")
)

// linked is a member: the VMM's end of its link.
type linked struct {
	*guest
	link net.Conn
}

func (b *bench) member(vm, tenant, network, alias string, addr netip.Addr) *linked {
	b.t.Helper()
	g := b.bindAs(control.Binding{VM: vm, Sandbox: "s-" + vm, Tenant: tenant,
		Member: &control.Member{Network: network, Alias: alias, Addr: addr}})
	m, f, err := g.receive()
	if err != nil || m.Kind != netwire.Link {
		b.t.Fatalf("instead of its link %s gets %+v, %v", vm, m, err)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	return &linked{g, c}
}

// pair returns two members of a network.
func (b *bench) pair() (web, db *linked) {
	return b.member("web", "acme", "n1", "web", webIP), b.member("db", "acme", "n1", "db", dbIP)
}

// segment is a TCP segment without data. Its checksum is not read by forkd-net.
func segment(src, dst netip.Addr, srcPort, dstPort uint16, seq, acked uint32, flags uint8) []byte {
	b := make([]byte, linkHeader+40)
	binary.BigEndian.PutUint16(b[12+12:], 0x0800)
	ip := b[linkHeader:]
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(ip[2:], 40)
	from, to := src.As4(), dst.As4()
	copy(ip[12:], from[:])
	copy(ip[16:], to[:])
	tcp := ip[20:]
	binary.BigEndian.PutUint16(tcp, srcPort)
	binary.BigEndian.PutUint16(tcp[2:], dstPort)
	binary.BigEndian.PutUint32(tcp[4:], seq)
	binary.BigEndian.PutUint32(tcp[8:], acked)
	tcp[12], tcp[13] = 5<<4, flags
	return b
}

// got is a received segment.
type got struct {
	src, dst         netip.Addr
	srcPort, dstPort uint16
	seq, ack         uint32
	flags            uint8
}

func (l *linked) send(b []byte) {
	l.t.Helper()
	if _, err := l.link.Write(b); err != nil {
		l.t.Fatal(err)
	}
}

// next returns the next segment to the member.
func (l *linked) next() got {
	l.t.Helper()
	b := make([]byte, 70000)
	l.link.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, err := l.link.Read(b)
	if err != nil || n < linkHeader+40 {
		l.t.Fatalf("%s gets %d bytes: %v", l.name, n, err)
	}
	ip := b[linkHeader:n]
	tcp := ip[20:]
	return got{netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:])), binary.BigEndian.Uint16(tcp),
		binary.BigEndian.Uint16(tcp[2:]), binary.BigEndian.Uint32(tcp[4:]), binary.BigEndian.Uint32(tcp[8:]), tcp[13]}
}

// wantNothing sends the member a segment from another one behind anything that must not arrive.
func (l *linked) wantNothing(from *linked, own, addr netip.Addr) {
	l.t.Helper()
	from.send(segment(guestIP, addr, 999, 999, 0, 0, syn))
	if g := l.next(); g.srcPort != 999 || g.src != own {
		l.t.Errorf("%s gets %+v", l.name, g)
	}
}

// connect opens a connection from web to db.
func connect(web, db *linked) {
	web.t.Helper()
	web.send(segment(guestIP, dbIP, 40000, 5432, 100, 0, syn))
	if g := db.next(); g != (got{webIP, guestIP, 40000, 5432, 100, 0, syn}) {
		web.t.Fatalf("db gets %+v", g)
	}
	db.send(segment(guestIP, webIP, 5432, 40000, 500, 101, syn|ack))
	if g := web.next(); g != (got{dbIP, guestIP, 5432, 40000, 500, 101, syn | ack}) {
		web.t.Fatalf("web gets %+v", g)
	}
	web.send(segment(guestIP, dbIP, 40000, 5432, 101, 501, ack))
	db.next()
}

func TestMembersReachEachOtherByTheirAddresses(t *testing.T) {
	b := newBench(t)
	web, db := b.pair()
	connect(web, db)
	flows, err := b.s.Flows("web")
	if err != nil || len(flows) != 1 || flows[0].Name != "db.forkd.internal" || flows[0].Far.Port() != 5432 {
		t.Errorf("the flows of web are %+v, %v", flows, err)
	}
	if flows, _ := b.s.Flows("db"); len(flows) != 0 {
		t.Errorf("db has opened %+v", flows)
	}
	db.send(segment(guestIP, webIP, 40000, 80, 7, 0, syn)) // the other way, to a port that is in use there
	if g := web.next(); g.src != dbIP || g.dstPort != 80 {
		t.Errorf("web gets %+v", g)
	}
}

func TestNothingPassesBetweenNetworksAndTenants(t *testing.T) {
	b := newBench(t)
	web, db := b.pair()
	others := map[string]*linked{
		"another network": b.member("o1", "acme", "n2", "db", dbIP),
		"another tenant":  b.member("o2", "evil", "n1", "db", dbIP),
		"the operator":    b.member("o3", "", "n1", "db", dbIP),
	}
	for name, o := range others {
		t.Run(name, func(t *testing.T) {
			o.send(segment(guestIP, webIP, 1, 80, 7, 0, syn))
			if g := o.next(); g.flags != rst|ack || g.ack != 8 || g.src != webIP {
				t.Errorf("a connection to web is answered %+v", g)
			}
		})
	}
	connect(web, db)
}

// A guest may claim any source and any destination. Such packets reach neither a member nor the host.
func TestForgedPacketsAreDropped(t *testing.T) {
	b := newBench(t)
	web, db := b.pair()
	for _, to := range []string{"10.0.0.1", "127.0.0.1", "192.0.0.1", "192.0.0.2", "192.0.0.8", "169.254.169.254",
		"192.0.0.63", "192.0.0.128", "255.255.255.255"} {
		web.send(segment(guestIP, netip.MustParseAddr(to), 1, 80, 7, 0, syn))
	}
	for _, from := range []string{"192.0.0.66", "192.0.0.65", "192.0.0.1", "10.0.0.1", "127.0.0.1"} {
		web.send(segment(netip.MustParseAddr(from), dbIP, 1, 80, 7, 0, syn))
	}
	web.send([]byte("short"))
	web.send(make([]byte, 66000))
	web.send(segment(guestIP, dbIP, 40000, 5432, 1, 1, rst)) // of no connection
	db.wantNothing(web, webIP, dbIP)
	for i := range byte(64) { // a scan: addresses without a member are refused
		to := netip.AddrFrom4([4]byte{192, 0, 0, 64 + i})
		if to == webIP || to == dbIP {
			continue
		}
		web.send(segment(guestIP, to, 1, 80, 7, 0, syn))
		if g := web.next(); g.flags != rst|ack || g.src != to {
			t.Fatalf("a connection to %s is answered %+v", to, g)
		}
	}
}

func TestAPolicyDeniesAMember(t *testing.T) {
	b := newBench(t)
	b.rules.deniesMember = func(name string, port uint16) bool { return name == "db.forkd.internal" && port == 22 }
	web, db := b.pair()
	web.send(segment(guestIP, dbIP, 40000, 22, 100, 0, syn))
	if g := web.next(); g.flags != rst|ack {
		t.Errorf("web gets %+v", g)
	}
	lines, _ := b.s.Refusals("web")
	if len(lines) != 1 || lines[0].Verdict != control.Denied || lines[0].Name != "db.forkd.internal" {
		t.Errorf("the refusals are %+v", lines)
	}
	connect(web, db)
	b.rules.mu.Lock()
	b.rules.deniesMember = func(_ string, port uint16) bool { return port == 5432 }
	b.rules.mu.Unlock()
	if _, err := b.s.Update("web", netpolicy.Spec{}); err != nil {
		t.Fatal(err)
	}
	if g := web.next(); g.flags != rst || g.seq != 501 {
		t.Errorf("after the change web gets %+v", g)
	}
	if g := db.next(); g.flags != rst || g.seq != 101 || g.src != webIP {
		t.Errorf("after the change db gets %+v", g)
	}
}

// The VM of a paused or ended sandbox is released, and a rollback binds another one beside it first.
func TestConnectionsOfAMemberThatLeavesAreReset(t *testing.T) {
	b := newBench(t)
	web, db := b.pair()
	connect(web, db)
	again := b.member("db2", "acme", "n1", "db", dbIP)
	if g := web.next(); g.flags != rst || g.seq != 501 || g.src != dbIP {
		t.Errorf("after the rollback web gets %+v", g)
	}
	db.send(segment(guestIP, webIP, 1, 80, 7, 0, syn)) // the old VM is no member any more
	connect(web, again)
	if err := b.s.Release("db"); err != nil {
		t.Fatal(err)
	}
	again.wantNothing(web, webIP, dbIP)
	if err := b.s.Release("db2"); err != nil {
		t.Fatal(err)
	}
	if g := web.next(); g.flags&rst == 0 {
		t.Errorf("after the end web gets %+v", g)
	}
	for range 2 { // the second connection, above, was not answered
		web.send(segment(guestIP, dbIP, 40001, 5432, 9, 0, syn))
		if g := web.next(); g.flags&rst == 0 {
			t.Errorf("without db web gets %+v", g)
		}
	}
}

// forkd-net has died: its successor knows no flows, and gets a segment in the middle of one.
func TestConnectionsGoOnAfterARestart(t *testing.T) {
	b := newBench(t)
	web, db := b.pair()
	web.send(segment(guestIP, dbIP, 40000, 5432, 101, 501, ack))
	if g := db.next(); g.seq != 101 || g.ack != 501 {
		t.Errorf("db gets %+v", g)
	}
	b.rules.mu.Lock()
	b.rules.deniesMember = func(name string, _ uint16) bool { return name == "web.forkd.internal" }
	b.rules.mu.Unlock()
	web.send(segment(guestIP, dbIP, 40001, 5432, 101, 501, ack))
	if g := web.next(); g.flags != rst || g.seq != 501 {
		t.Errorf("one direction is denied, and web gets %+v", g)
	}
}

func TestFloodsOfConnectionsAreBounded(t *testing.T) {
	b := newBench(t)
	b.rules.limits = netpolicy.Limits{Flows: 16, FlowsPerSecond: 1000}
	web, db := b.pair()
	refused := 0
	for i := range uint16(64) {
		web.send(segment(guestIP, dbIP, 1000+i, 5432, 100, 0, syn))
		if i < 16 {
			db.next()
		} else if g := web.next(); g.flags == rst|ack {
			refused++
		}
	}
	lines, _ := b.s.Refusals("web")
	if refused != 48 || len(lines) == 0 || lines[0].Verdict != control.Limited || !strings.Contains(lines[0].Reason, "16 flows") {
		t.Errorf("%d of 64 are refused, with %+v", refused, lines)
	}
	db.send(segment(guestIP, webIP, 1, 80, 7, 0, syn)) // the others have their own limits
	if g := web.next(); g.dstPort != 80 {
		t.Errorf("web gets %+v", g)
	}
}

func TestNamesOfMembersAreThoseOfTheirNetwork(t *testing.T) {
	b := newBench(t)
	b.pair()
	b.member("o1", "evil", "n1", "secret", dbIP)
	names := b.rules.bound["web"].Names
	if a, ok := names("db.forkd.internal"); !ok || a != dbIP {
		t.Errorf("db is %s, %t", a, ok)
	}
	for _, name := range []string{"secret.forkd.internal", "x.forkd.internal", "db", "db.example.com", "host.forkd.internal",
		"forkd.internal", ".forkd.internal"} {
		if a, ok := names(name); ok {
			t.Errorf("%q is %s", name, a)
		}
	}
	if err := b.s.Release("db"); err != nil {
		t.Fatal(err)
	}
	if a, ok := names("db.forkd.internal"); ok {
		t.Errorf("db has left, and is %s", a)
	}
}
