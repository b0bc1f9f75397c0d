package usernet

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	virtionet "github.com/forkd/forkd/internal/vm/virtio/net"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// wire is the guest's end of an engine, frame by frame.
type wire struct {
	engine *Engine
	frames chan wireFrame
}

type wireFrame struct {
	virtionet.Header
	bytes []byte
}

func newWire(t testing.TB, c Config) *wire {
	t.Helper()
	w := &wire{frames: make(chan wireFrame, 4096)}
	c.Guest = w
	w.engine = New(c)
	t.Cleanup(w.engine.Close)
	return w
}

// Receive implements virtionet.Guest.
func (w *wire) Receive(h virtionet.Header, frame []byte) bool {
	select {
	case w.frames <- wireFrame{h, append([]byte(nil), frame...)}:
		return true
	default:
		return false
	}
}

func (w *wire) send(packet []byte) { w.engine.Transmit(virtionet.Header{}, ethernet(packet)) }

// next returns the next frame to the guest.
func (w *wire) next(t testing.TB) wireFrame {
	t.Helper()
	select {
	case f := <-w.frames:
		return f
	case <-time.After(5 * time.Second):
		t.Fatalf("no frame came; %+v", w.engine.Stats())
		panic("unreachable")
	}
}

// none fails if there is a frame to the guest.
func (w *wire) none(t testing.TB) {
	t.Helper()
	select {
	case f := <-w.frames:
		t.Errorf("a frame came: % x", f.bytes)
	default:
	}
}

func (f wireFrame) parse(t testing.TB) packet {
	t.Helper()
	p, err := parseIPv4(f.bytes[header.EthernetMinimumSize:])
	if binary.BigEndian.Uint16(f.bytes[12:]) == uint16(header.IPv6ProtocolNumber) {
		p, err = parseIPv6(f.bytes[header.EthernetMinimumSize:])
	}
	if err != nil {
		t.Fatalf("frame to the guest: %v: % x", err, f.bytes)
	}
	return p
}

// ethernet prepends the guest's Ethernet header to a packet.
func ethernet(packet []byte) []byte {
	frame := make([]byte, header.EthernetMinimumSize, header.EthernetMinimumSize+len(packet))
	copy(frame, gatewayMAC[:])
	copy(frame[6:], guestMAC[:])
	protocol := header.IPv4ProtocolNumber
	if len(packet) > 0 && packet[0]>>4 == 6 {
		protocol = header.IPv6ProtocolNumber
	}
	binary.BigEndian.PutUint16(frame[12:], uint16(protocol))
	return append(frame, packet...)
}

// ipPacket prepends an IP header to a payload.
func ipPacket(src, dst netip.Addr, p Protocol, payload []byte) []byte {
	if src.Is4() {
		b := make([]byte, header.IPv4MinimumSize, header.IPv4MinimumSize+len(payload))
		header.IPv4(b).Encode(&header.IPv4Fields{
			TotalLength: uint16(cap(b)), TTL: 64, Protocol: uint8(p), SrcAddr: toStack(src), DstAddr: toStack(dst),
		})
		header.IPv4(b).SetChecksum(^header.IPv4(b).CalculateChecksum())
		return append(b, payload...)
	}
	b := make([]byte, header.IPv6MinimumSize, header.IPv6MinimumSize+len(payload))
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(payload)), HopLimit: 255, SrcAddr: toStack(src), DstAddr: toStack(dst),
	})
	b[6] = byte(p)
	return append(b, payload...)
}

// withChecksum sets the checksum at an offset of a transport's header.
func withChecksum(src, dst netip.Addr, p Protocol, payload []byte, at int) []byte {
	sum := uint16(0)
	if p != Echo {
		b := ipPacket(src, dst, p, payload)
		parsed, err := parseIPv4(b)
		if src.Is6() {
			parsed, err = parseIPv6(b)
		}
		if err != nil {
			panic(err)
		}
		sum = parsed.pseudo
	}
	binary.BigEndian.PutUint16(payload[at:], 0)
	binary.BigEndian.PutUint16(payload[at:], ^checksum.Checksum(payload, sum))
	return ipPacket(src, dst, p, payload)
}

func echoRequest(src, dst netip.Addr, id, seq uint16) []byte {
	m := make([]byte, 8+16)
	p := Echo
	if m[0] = byte(header.ICMPv4Echo); src.Is6() {
		m[0], p = byte(header.ICMPv6EchoRequest), protocolICMPv6
	}
	binary.BigEndian.PutUint16(m[4:], id)
	binary.BigEndian.PutUint16(m[6:], seq)
	return withChecksum(src, dst, p, m, 2)
}

func udpPacket(src, dst netip.AddrPort, payload string) []byte {
	b := make([]byte, header.UDPMinimumSize+len(payload))
	header.UDP(b).Encode(&header.UDPFields{SrcPort: src.Port(), DstPort: dst.Port(), Length: uint16(len(b))})
	copy(b[header.UDPMinimumSize:], payload)
	return withChecksum(src.Addr(), dst.Addr(), UDP, b, 6)
}

func tcpPacket(src, dst netip.AddrPort, seq uint32, flags header.TCPFlags, options ...byte) []byte {
	b := make([]byte, header.TCPMinimumSize+len(options))
	header.TCP(b).Encode(&header.TCPFields{
		SrcPort: src.Port(), DstPort: dst.Port(), SeqNum: seq, DataOffset: uint8(len(b)), Flags: flags, WindowSize: 65535,
	})
	copy(b[header.TCPMinimumSize:], options)
	return withChecksum(src.Addr(), dst.Addr(), TCP, b, 16)
}
