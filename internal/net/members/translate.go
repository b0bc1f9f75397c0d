package members

import (
	"encoding/binary"
	"net/netip"
)

// Translate replaces the addresses of a packet.
func (p *Packet) Translate(src, dst netip.Addr) {
	ip := p.frame[HeaderSize+etherSize:]
	var sum delta
	sum.replace(ip[12:16], src)
	sum.replace(ip[16:20], dst)
	sum.apply(ip[10:12], false)
	if at := p.checksumOffset(); at >= 0 {
		field := p.frame[p.l4+at:][:2]
		none := p.Protocol == UDP && !p.partial && field[0]|field[1] == 0 // RFC 768
		if !none {
			sum.apply(field, p.partial)
		}
		if p.Protocol == UDP && !none && !p.partial && field[0]|field[1] == 0 {
			binary.BigEndian.PutUint16(field, 0xffff) // the other form of zero
		}
	}
	p.Src, p.Dst = src, dst
}

// delta is the difference of two sums of 16-bit words (RFC 1624).
type delta uint32

func (d *delta) replace(field []byte, a netip.Addr) {
	b := a.As4()
	for i := 0; i < 4; i += 2 {
		*d += delta(^binary.BigEndian.Uint16(field[i:])) + delta(binary.BigEndian.Uint16(b[i:]))
	}
	copy(field, b[:])
}

// apply changes a checksum. A partial one is a sum and not its complement.
func (d delta) apply(field []byte, partial bool) {
	old := binary.BigEndian.Uint16(field)
	if !partial {
		old = ^old
	}
	now := fold(uint32(old) + uint32(d))
	if !partial {
		now = ^now
	}
	binary.BigEndian.PutUint16(field, now)
}

func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// checksum returns the Internet checksum (RFC 1071) of b, after a sum of other words.
func checksum(b []byte, sum uint32) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	return ^fold(sum)
}
