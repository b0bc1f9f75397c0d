package flows

import (
	"encoding/binary"
	"net/netip"
)

const (
	etherSize = 14
	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd

	ipv4Size, ipv6Size = 20, 40
	tcpSize, udpSize   = 20, 8

	protoICMP, protoTCP, protoUDP, protoICMPv6 = 1, 6, 17, 58
	extHopByHop, extRouting, extFragment       = 0, 43, 44
	extDestination                             = 60
	// maxExtensions and maxHeaders limit the walk through a frame's headers.
	maxExtensions, maxHeaders = 4, 512
)

// TCP flags (RFC 9293 §3.1).
const (
	flagFIN, flagSYN, flagRST, flagACK = 1, 2, 4, 16
)

// key names a flow from the guest's side. Addresses have 16 bytes; IPv4 addresses are mapped.
type key struct {
	guest, far         [16]byte
	guestPort, farPort uint16
}

func (k *key) v4() bool { return netip.AddrFrom16(k.far).Is4In6() }

// packet holds the frame fields used by the table.
type packet struct {
	key     key
	proto   uint8
	l4      int // offset of the transport's header in the frame
	payload int // bytes of data

	// TCP only.
	flags    uint8
	seq, ack uint32
}

// end returns the sequence number after a segment.
func (p *packet) end() uint32 {
	n := p.seq + uint32(p.payload)
	if p.flags&flagSYN != 0 {
		n++
	}
	if p.flags&flagFIN != 0 {
		n++
	}
	return n
}

// parse reads a frame from or to the guest. It returns false if the frame belongs to no flow.
func parse(frame []byte, fromGuest bool) (p packet, ok bool) {
	if len(frame) < etherSize {
		return p, false
	}
	var src, dst [16]byte
	var end int
	switch binary.BigEndian.Uint16(frame[12:]) {
	case typeIPv4:
		end, ok = p.parseIPv4(frame, &src, &dst)
	case typeIPv6:
		end, ok = p.parseIPv6(frame, &src, &dst)
	}
	if !ok {
		return p, false
	}
	if p.key.guest, p.key.far = src, dst; !fromGuest {
		p.key.guest, p.key.far = dst, src
	}
	return p, p.parsePorts(frame[:end], fromGuest)
}

// parseIPv4 finds the addresses, the transport's header and the packet's end in the frame.
func (p *packet) parseIPv4(frame []byte, src, dst *[16]byte) (end int, ok bool) {
	b := frame[etherSize:]
	if len(b) < ipv4Size || b[0]>>4 != 4 {
		return 0, false
	}
	header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if header < ipv4Size || total < header || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 { // a later fragment
		return 0, false
	}
	*src, *dst = netip.AddrFrom4([4]byte(b[12:])).As16(), netip.AddrFrom4([4]byte(b[16:])).As16()
	p.proto, p.l4 = b[9], etherSize+header
	return min(etherSize+total, len(frame)), true
}

// parseIPv6 is parseIPv4 for IPv6. It skips a bounded number of extension headers.
func (p *packet) parseIPv6(frame []byte, src, dst *[16]byte) (end int, ok bool) {
	b := frame[etherSize:]
	if len(b) < ipv6Size || b[0]>>4 != 6 {
		return 0, false
	}
	*src, *dst = [16]byte(b[8:]), [16]byte(b[24:])
	if netip.AddrFrom16(*src).Is4In6() || netip.AddrFrom16(*dst).Is4In6() {
		return 0, false // never used on a link, and the table takes them for IPv4
	}
	end = min(etherSize+ipv6Size+int(binary.BigEndian.Uint16(b[4:])), len(frame))
	p.proto, p.l4 = b[6], etherSize+ipv6Size
	for range maxExtensions {
		if p.l4+8 > end || p.l4 > maxHeaders {
			return 0, false
		}
		h := frame[p.l4:]
		switch p.proto {
		case extHopByHop, extRouting, extDestination:
			p.l4 += 8 + 8*int(h[1])
		case extFragment:
			if binary.BigEndian.Uint16(h[2:])&0xfff8 != 0 {
				return 0, false
			}
			p.l4 += 8
		default:
			return end, true
		}
		p.proto = h[0]
	}
	return 0, false
}

// parsePorts reads the transport's header. frame ends with the packet.
func (p *packet) parsePorts(frame []byte, fromGuest bool) bool {
	if p.l4 > len(frame) {
		return false
	}
	b := frame[p.l4:]
	switch {
	case p.proto == protoTCP && len(b) >= tcpSize:
		header := int(b[12]>>4) * 4
		if header < tcpSize || header > len(b) {
			return false
		}
		p.seq, p.ack = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
		p.flags, p.payload = b[13], len(b)-header
	case p.proto == protoUDP && len(b) >= udpSize:
		p.payload = len(b) - udpSize
	default:
		return false
	}
	src, dst := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	if p.key.guestPort, p.key.farPort = src, dst; !fromGuest {
		p.key.guestPort, p.key.farPort = dst, src
	}
	return true
}
