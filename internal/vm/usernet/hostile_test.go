package usernet

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	virtionet "github.com/forkd/forkd/internal/vm/virtio/net"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

var (
	guestPort  = netip.AddrPortFrom(guest4, 40000)
	guestPort6 = netip.AddrPortFrom(guest6, 40000)
)

func TestTheGatewayIsResolved(t *testing.T) {
	arp := func(target netip.Addr) []byte {
		b := make([]byte, header.EthernetMinimumSize+header.ARPSize)
		copy(b, broadcastMAC[:])
		copy(b[6:], guestMAC[:])
		binary.BigEndian.PutUint16(b[12:], uint16(header.ARPProtocolNumber))
		a := header.ARP(b[header.EthernetMinimumSize:])
		a.SetIPv4OverEthernet()
		a.SetOp(header.ARPRequest)
		copy(a.HardwareAddressSender(), guestMAC[:])
		copy(a.ProtocolAddressSender(), guest4.AsSlice())
		copy(a.ProtocolAddressTarget(), target.AsSlice())
		return b
	}
	w := newWire(t, Config{Dialer: &hostDialer{}})
	w.engine.Transmit(virtionet.Header{}, arp(guestnet.Gateway4))
	a := header.ARP(w.next(t).bytes[header.EthernetMinimumSize:])
	if !a.IsValid() || a.Op() != header.ARPReply || MAC(a.HardwareAddressSender()) != gatewayMAC {
		t.Errorf("answer is % x", []byte(a))
	}
	w.engine.Transmit(virtionet.Header{}, arp(guest4)) // duplicate address detection
	w.engine.Transmit(virtionet.Header{}, arp(netip.MustParseAddr("192.0.0.3")))
	w.none(t)
	for _, target := range []netip.Addr{guestnet.Gateway6, guestnet.GatewayUniqueLocal} {
		w.send(solicitation(guest6, target))
		p := w.next(t).parse(t)
		if m := p.segment.bytes; m[0] != 136 || MAC(m[26:]) != gatewayMAC || p.src != target || p.dst != guest6 || verify(p.segment, true) != nil {
			t.Errorf("answer is % x", p.bytes)
		}
	}
	w.send(solicitation(netip.IPv6Unspecified(), guestnet.GatewayUniqueLocal))
	if p := w.next(t).parse(t); p.dst != allNodes {
		t.Errorf("answer to %s, want all nodes", p.dst)
	}
	w.send(solicitation(netip.IPv6Unspecified(), guest6))
	w.none(t)
	if w.engine.stack != nil {
		t.Error("a stack was made for it")
	}
}

func solicitation(src, target netip.Addr) []byte {
	m := make([]byte, solicitationSize)
	m[0] = 135
	copy(m[8:], target.AsSlice())
	return withChecksum(src, guestnet.Gateway6, protocolICMPv6, m, 2)
}

func TestSpoofedSourcesAreDropped(t *testing.T) {
	d := &hostDialer{}
	w := newWire(t, Config{Dialer: d})
	for _, src := range []string{"192.0.0.3:1", "10.0.0.1:1", "127.0.0.1:1", "192.0.0.1:1", "0.0.0.0:1"} {
		w.send(udpPacket(netip.MustParseAddrPort(src), far, "x"))
	}
	for _, src := range []string{"[fd66:6f72:6b64::3]:1", "[fe80::1]:1", "[::1]:1", "[::]:1"} {
		w.send(udpPacket(netip.MustParseAddrPort(src), far6, "x"))
	}
	if s := w.engine.Stats(); s.Spoofed != 9 || s.Flows != 0 || len(d.seen()) != 0 {
		t.Errorf("stats are %+v", s)
	}
	w.none(t)
}

func TestSegmentsOfUnknownFlowsAreReset(t *testing.T) {
	w := newWire(t, Config{Dialer: &hostDialer{}})
	for _, p := range [][]byte{
		tcpPacket(guestPort, far, 1, header.TCPFlagAck), tcpPacket(guestPort6, far6, 1, header.TCPFlagAck|header.TCPFlagPsh),
		tcpPacket(guestPort, far, 1, header.TCPFlagFin|header.TCPFlagAck), tcpPacket(guestPort, far, 1, header.TCPFlagSyn|header.TCPFlagAck),
	} {
		w.send(p)
		got := w.next(t).parse(t)
		if f := header.TCP(got.segment.bytes).Flags(); !f.Contains(header.TCPFlagRst) {
			t.Errorf("answer has the flags %s", f)
		}
	}
	w.send(tcpPacket(guestPort, far, 1, header.TCPFlagRst))
	w.none(t)
}

func TestHeadersThatDoNotFitAreRefused(t *testing.T) {
	d := &hostDialer{}
	w := newWire(t, Config{Dialer: d})
	syn := ethernet(tcpPacket(guestPort, far, 1, header.TCPFlagSyn))
	long := ethernet(tcpPacket(guestPort, far, 1, header.TCPFlagSyn, make([]byte, 40)...))
	bad := append([]byte(nil), syn...)
	bad[len(bad)-3] ^= 1
	ok := virtionet.Header{Flags: virtionet.NeedsChecksum, ChecksumStart: 34, ChecksumOffset: 16}
	with := func(f func(*virtionet.Header)) virtionet.Header {
		h := ok
		f(&h)
		return h
	}
	cases := []struct {
		h     virtionet.Header
		frame []byte
	}{
		{with(func(h *virtionet.Header) { h.ChecksumStart = 65535 }), syn},
		{with(func(h *virtionet.Header) { h.ChecksumOffset = 65535 }), syn},
		{with(func(h *virtionet.Header) { h.ChecksumOffset = 6 }), syn},
		{with(func(h *virtionet.Header) { h.GSOType = 3; h.GSOSize = 100 }), syn},
		{with(func(h *virtionet.Header) { h.GSOType = virtionet.GSOTCPv4 }), syn},
		{with(func(h *virtionet.Header) { h.GSOType, h.GSOSize = virtionet.GSOTCPv6, 100 }), syn},
		{with(func(h *virtionet.Header) { h.GSOType = 0x7f }), long},
		{virtionet.Header{GSOType: virtionet.GSOTCPv4, GSOSize: 100}, syn},
		{virtionet.Header{}, bad},
		{virtionet.Header{}, ethernet(ipPacket(guest4, far.Addr(), UDP, make([]byte, 1481)))},
		{virtionet.Header{}, syn[:20]}, {virtionet.Header{}, nil}, {virtionet.Header{}, syn[:33]},
		{virtionet.Header{}, make([]byte, frameMax+1)},
	}
	for _, c := range cases {
		w.engine.Transmit(c.h, c.frame)
	}
	if s := w.engine.Stats(); s.BadFrames != uint64(len(cases)) || len(d.seen()) != 0 {
		t.Errorf("%d frames are bad, want %d", s.BadFrames, len(cases))
	}
	w.engine.Transmit(ok, bad) // its checksum is still missing
	eventually(t, "the SYN is taken", func() bool { return len(d.seen()) == 1 })
}

// waitingDialer dials until its context ends.
func waitingDialer() *hostDialer {
	return &hostDialer{tcpDo: func(ctx context.Context, _ Flow) error {
		<-ctx.Done()
		return ctx.Err()
	}}
}

func TestAFloodOfSYNsIsBounded(t *testing.T) {
	w := newWire(t, Config{Dialer: waitingDialer(), Limits: Limits{Dials: 50, FlowsPerSec: 1000}})
	const syns = 5000
	for i := range syns {
		src := netip.AddrPortFrom(guest4, uint16(1024+i))
		w.send(tcpPacket(src, far, uint32(i), header.TCPFlagSyn, 0x02, 0xff, 0x03, 0x00)) // MSS with a missing length
		w.send(tcpPacket(src, far, uint32(i), header.TCPFlagSyn))
	}
	if s := w.engine.Stats(); s.Dials != 50 || s.Flows != 50 || s.OverDials == 0 {
		t.Errorf("stats are %+v", s)
	}
	w.engine.Close()
	if s := w.engine.Stats(); s.Flows != 0 || s.Dials != 0 {
		t.Errorf("after Close: %+v", s)
	}
}

func TestNewFlowsAreBoundedInASecond(t *testing.T) {
	w := newWire(t, Config{Dialer: waitingDialer(), Limits: Limits{FlowsPerSec: 10}})
	start := time.Now()
	for i := range 100 {
		w.send(udpPacket(netip.AddrPortFrom(guest4, uint16(1024+i)), far, "x"))
	}
	most := 11 + uint64(10*time.Since(start).Seconds())
	if s := w.engine.Stats(); s.Flows < 10 || s.Flows > most || s.OverRate+s.Flows != 100 {
		t.Errorf("stats are %+v", s)
	}
}

func TestIdleDatagramsMakeRoom(t *testing.T) {
	d := &hostDialer{udp: udpEcho(t)}
	w := newWire(t, Config{Dialer: d, Limits: Limits{Flows: 2}})
	for i := range 2 {
		w.send(udpPacket(netip.AddrPortFrom(guest4, uint16(1024+i)), far, "x"))
		w.next(t)
	}
	w.send(tcpPacket(guestPort, far, 1, header.TCPFlagSyn))
	if s := w.engine.Stats(); s.OverFlows != 1 {
		t.Errorf("stats are %+v: flows in use made room", s)
	}
	eventually(t, "an idle flow makes room", func() bool {
		w.send(tcpPacket(guestPort, far, 1, header.TCPFlagSyn))
		return w.engine.Stats().Evicted == 1
	})
}

func TestAGuestThatTakesNothingIsBounded(t *testing.T) {
	addr := listen(t, func(c *net.TCPConn) { // sends for ever
		defer c.Close()
		for b := make([]byte, 1<<16); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	w := newWire(t, Config{Dialer: &hostDialer{tcp: addr}, Limits: Limits{Queue: 64 << 10}})
	w.send(tcpPacket(guestPort, far, 100, header.TCPFlagSyn))
	synAck := header.TCP(w.next(t).parse(t).segment.bytes)
	ack := tcpPacket(guestPort, far, 101, header.TCPFlagAck)
	tcp := ack[header.IPv4MinimumSize:]
	header.TCP(tcp).SetAckNumber(synAck.SequenceNumber() + 1)
	header.TCP(tcp).SetWindowSize(0)
	w.send(withChecksum(guest4, far.Addr(), TCP, tcp, 16))
	eventually(t, "the flow opens", func() bool { return w.engine.Stats().Opened == 1 })
	time.Sleep(100 * time.Millisecond) // elapses: what a window of zero holds back
	if s := w.engine.Stats(); s.BytesOut > 10000 {
		t.Errorf("%d bytes went out", s.BytesOut)
	}
}

func TestFramesWaitForRoomAndNoMore(t *testing.T) {
	g := &fullGuest{}
	var c counters
	o := outbox{guest: g, limit: 3000, count: &c}
	for i := range 5 {
		o.send(virtionet.Header{}, []byte(fmt.Sprintf("%d%0999d", i, 0)))
	}
	if len(o.waiting) != 3 || c.dropped.Load() != 2 {
		t.Fatalf("%d frames wait, %d were dropped", len(o.waiting), c.dropped.Load())
	}
	g.room = 2
	o.drain()
	g.room = 5
	o.drain()
	o.send(virtionet.Header{}, []byte("5"))
	if g.got != "0125" {
		t.Errorf("the guest got %q", g.got)
	}
}

type fullGuest struct {
	room int
	got  string
}

func (g *fullGuest) Receive(_ virtionet.Header, frame []byte) bool {
	if g.room == 0 {
		return false
	}
	g.room--
	g.got += string(frame[:1])
	return true
}

func TestAnIdleEngineIsNothing(t *testing.T) {
	e := New(Config{Guest: &fullGuest{}, Dialer: &hostDialer{}})
	e.Writable()
	if e.stack != nil {
		t.Error("a stack was made before the first frame")
	}
	e.Close()
	e.Close()
	e.Transmit(virtionet.Header{}, ethernet(tcpPacket(guestPort, far, 1, header.TCPFlagSyn)))
	if e.stack != nil {
		t.Error("a stack was made after Close")
	}
}

// FuzzTransmit passes a hostile guest's frames to an engine.
func FuzzTransmit(f *testing.F) {
	add := func(h virtionet.Header, frame []byte) {
		b := make([]byte, virtionet.HeaderSize)
		h.Encode(b)
		f.Add(append(b, frame...))
	}
	for _, p := range [][]byte{
		tcpPacket(guestPort, far, 1, header.TCPFlagSyn, 2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7),
		tcpPacket(guestPort6, far6, 1, header.TCPFlagSyn), udpPacket(guestPort, far, "x"), udpPacket(guestPort6, far6, "x"),
		echoRequest(guest4, far.Addr(), 1, 1), echoRequest(guest6, guestnet.GatewayUniqueLocal, 1, 1), solicitation(guest6, guestnet.GatewayUniqueLocal),
		ipPacket(guest6, far6.Addr(), protocolFragment, make([]byte, 20)),
	} {
		add(virtionet.Header{}, ethernet(p))
	}
	add(virtionet.Header{Flags: 1, GSOType: 1, GSOSize: 1448, ChecksumStart: 34, ChecksumOffset: 16, HeaderLen: 54},
		ethernet(tcpPacket(guestPort, far, 1, header.TCPFlagAck)))
	e := New(Config{Guest: &fullGuest{room: 1 << 62}, Dialer: &hostDialer{
		tcpDo: func(context.Context, Flow) error { return &Refusal{HostUnreachable} },
	}, Limits: Limits{FlowsPerSec: 1 << 20}})
	f.Cleanup(e.Close)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < virtionet.HeaderSize {
			return
		}
		h, frame := virtionet.DecodeHeader(b), b[virtionet.HeaderSize:]
		e.Transmit(h, frame)
		e.Transmit(h, mend(frame))
	})
}

// mend corrects the fields that would stop a frame early: addresses and checksums.
func mend(frame []byte) []byte {
	b := append([]byte(nil), frame...)
	if len(b) < header.EthernetMinimumSize+header.IPv4MinimumSize {
		return b
	}
	copy(b, gatewayMAC[:])
	b[6] = 2
	ip := b[header.EthernetMinimumSize:]
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(b[12:], uint16(header.IPv6ProtocolNumber))
		if len(ip) >= header.IPv6MinimumSize {
			copy(ip[8:], guest6.AsSlice())
			binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-header.IPv6MinimumSize))
			if p, err := parseIPv6(ip); err == nil {
				mendTransport(p)
			}
		}
		return b
	}
	binary.BigEndian.PutUint16(b[12:], uint16(header.IPv4ProtocolNumber))
	h := header.IPv4(ip)
	hlen := min(int(h.HeaderLength()), len(ip)&^3)
	if hlen < header.IPv4MinimumSize {
		hlen = header.IPv4MinimumSize
	}
	h.SetHeaderLength(uint8(hlen))
	ip[0] = 4<<4 | ip[0]&15
	h.SetTotalLength(uint16(len(ip)))
	copy(ip[12:], guest4.AsSlice())
	h.SetChecksum(0)
	h.SetChecksum(^h.CalculateChecksum())
	if p, err := parseIPv4(ip); err == nil {
		mendTransport(p)
	}
	return b
}

func mendTransport(p packet) {
	at, ok := checksumOffset(p.protocol)
	if p.protocol == Echo || p.protocol == protocolICMPv6 {
		at, ok = 2, true
	}
	if ok && len(p.segment.bytes) >= at+2 {
		sum := p.pseudo
		if p.protocol == Echo {
			sum = 0
		}
		binary.BigEndian.PutUint16(p.segment.bytes[at:], 0)
		binary.BigEndian.PutUint16(p.segment.bytes[at:], ^checksum.Checksum(p.segment.bytes, sum))
	}
}
