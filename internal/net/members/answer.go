package members

import (
	"encoding/binary"
	"net/netip"
)

// Why is the reason of a refusal, as a code of ICMP (RFC 1812 §5.2.7.1).
type Why uint8

// Reasons.
const (
	HostUnreachable Why = 1
	Prohibited      Why = 13
)

// Refusal returns the answer to a packet that is not passed on: a reset of TCP, or an ICMP message.
// It returns nil for packets without an answer. The answer's addresses are those that the sender
// uses.
func (p *Packet) Refusal(why Why) []byte {
	switch {
	case p.Protocol == TCP && p.flags&flagRST != 0:
		return nil
	case p.Protocol == TCP && p.flags&flagACK != 0:
		return reset(p.Dst, p.Src, p.DstPort, p.SrcPort, p.ack, 0, flagRST)
	case p.Protocol == TCP:
		return reset(p.Dst, p.Src, p.DstPort, p.SrcPort, 0, p.end(), flagRST|flagACK)
	case p.Protocol == ICMP && p.icmpType != echoRequest:
		return nil
	}
	original := p.frame[HeaderSize+etherSize:]
	original = original[:min(len(original), p.l4-HeaderSize-etherSize+8)]
	b := packetOf(p.Dst, p.Src, ICMP, icmpSize+len(original))
	icmp := b[HeaderSize+etherSize+ipv4Size:]
	icmp[0], icmp[1] = unreachable, byte(why)
	copy(icmp[icmpSize:], original)
	binary.BigEndian.PutUint16(icmp[2:], checksum(icmp, 0))
	return b
}

// end returns the sequence number after a segment.
func (p *Packet) end() uint32 {
	n := p.seq + uint32(p.payload) // #nosec G115 -- at most 64 KiB
	if p.flags&flagSYN != 0 {
		n++
	}
	if p.flags&flagFIN != 0 {
		n++
	}
	return n
}

// reset returns a segment that ends a connection.
func reset(src, dst netip.Addr, srcPort, dstPort uint16, seq, ack uint32, flags uint8) []byte {
	b := packetOf(src, dst, TCP, tcpSize)
	tcp := b[HeaderSize+etherSize+ipv4Size:]
	binary.BigEndian.PutUint16(tcp, srcPort)
	binary.BigEndian.PutUint16(tcp[2:], dstPort)
	binary.BigEndian.PutUint32(tcp[4:], seq)
	binary.BigEndian.PutUint32(tcp[8:], ack)
	tcp[12], tcp[13] = tcpSize/4<<4, flags
	pseudo := uint32(TCP + tcpSize)
	for _, a := range [][4]byte{src.As4(), dst.As4()} {
		pseudo += uint32(binary.BigEndian.Uint16(a[:])) + uint32(binary.BigEndian.Uint16(a[2:]))
	}
	binary.BigEndian.PutUint16(tcp[16:], checksum(tcp, pseudo))
	return b
}

// packetOf returns a message of a link with an IP header. The link sets the hardware addresses.
func packetOf(src, dst netip.Addr, protocol uint8, n int) []byte {
	b := make([]byte, HeaderSize+etherSize+ipv4Size+n)
	binary.BigEndian.PutUint16(b[HeaderSize+12:], typeIPv4)
	ip := b[HeaderSize+etherSize:]
	ip[0], ip[8], ip[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(ip[2:], uint16(ipv4Size+n)) // #nosec G115 -- a header and a few bytes
	ip[6] = 0x40                                           // do not fragment
	from, to := src.As4(), dst.As4()
	copy(ip[12:], from[:])
	copy(ip[16:], to[:])
	binary.BigEndian.PutUint16(ip[10:], checksum(ip[:ipv4Size], 0))
	return b
}
