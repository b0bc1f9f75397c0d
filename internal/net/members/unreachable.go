package members

import (
	"encoding/binary"
	"net/netip"
)

// Quoted returns the packet that an ICMP error quotes, which was sent to the sender of the error.
// It returns false for any other packet, or if the quotation is damaged.
func (p *Packet) Quoted() (q Packet, ok bool) {
	if p.Protocol != ICMP || p.icmpType != unreachable {
		return q, false
	}
	ip := p.frame[p.l4+icmpSize:]
	if len(ip) < ipv4Size || ip[0]>>4 != 4 || int(ip[0]&15)*4 < ipv4Size || len(ip) < int(ip[0]&15)*4+8 {
		return q, false
	}
	q = Packet{Protocol: ip[9], Src: netip.AddrFrom4([4]byte(ip[12:])), Dst: netip.AddrFrom4([4]byte(ip[16:]))}
	l4 := ip[int(ip[0]&15)*4:]
	q.SrcPort, q.DstPort = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	return q, q.Protocol == UDP // TCP does not need it: a closed port sends a reset
}

// TranslateQuoted replaces the addresses of an ICMP error and of the packet in it, by the sender's
// address in the eyes of the receiver and the receiver's own.
func (p *Packet) TranslateQuoted(sender, guest netip.Addr) {
	quoted := p.frame[p.l4+icmpSize:]
	var sum delta
	sum.replace(quoted[12:16], guest)
	sum.replace(quoted[16:20], sender)
	sum.apply(quoted[10:12], false)
	icmp := p.frame[p.l4:]
	icmp[2], icmp[3] = 0, 0
	binary.BigEndian.PutUint16(icmp[2:], checksum(icmp, 0))
	p.Translate(sender, guest)
}
