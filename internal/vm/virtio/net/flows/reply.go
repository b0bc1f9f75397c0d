package flows

import (
	"encoding/binary"
	"net/netip"
)

// maxReset is the length of the longest frame of Reset, in bytes.
const maxReset = etherSize + ipv6Size + tcpSize

// hops is the time to live of the table's own packets.
const hops = 64

// Reset returns the next frame for resetting an inherited connection of the guest, or nil if none
// is left. The frame is valid until the next call. guest is the guest's hardware address.
func (t *Table) Reset(guest [6]byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.resets) == 0 {
		return nil
	}
	r := &t.resets[0]
	seq := r.next
	if r.again {
		seq = r.ack
	}
	if t.reset == nil {
		t.reset = make([]byte, maxReset)
	}
	frame, segment := t.begin(t.reset, &r.key, guest, protoTCP, tcpSize)
	be := binary.BigEndian
	be.PutUint16(segment, r.key.farPort)
	be.PutUint16(segment[2:], r.key.guestPort)
	be.PutUint32(segment[4:], seq)
	// A connection being opened accepts a reset only if it acknowledges the sent data (RFC 9293
	// §3.10.7.3); other states ignore the field.
	be.PutUint32(segment[8:], r.sent)
	segment[12], segment[13] = tcpSize/4<<4, flagRST|flagACK
	be.PutUint16(segment[16:], ^fold(pseudo(&r.key, protoTCP, tcpSize)+sum(segment)))
	return frame
}

// ResetDone is called when the guest has received the frame of the last Reset.
func (t *Table) ResetDone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.resets) == 0 {
		return
	}
	r := &t.resets[0]
	if !r.again && r.ack != r.next {
		r.again = true
		return
	}
	if t.resets = t.resets[1:]; len(t.resets) == 0 {
		t.resets, t.reset = nil, nil
	}
}

// begin writes the headers of a frame from a flow's far end to the guest, with n bytes of proto.
func (t *Table) begin(buf []byte, k *key, guest [6]byte, proto uint8, n int) (frame, body []byte) {
	be := binary.BigEndian
	copy(buf, guest[:])
	copy(buf[6:], t.peer[:])
	ip := buf[etherSize:]
	if !k.v4() {
		be.PutUint16(buf[12:], typeIPv6)
		clear(ip[:ipv6Size+n])
		ip[0], ip[6], ip[7] = 6<<4, proto, hops
		be.PutUint16(ip[4:], uint16(n))
		copy(ip[8:], k.far[:])
		copy(ip[24:], k.guest[:])
		return buf[:etherSize+ipv6Size+n], ip[ipv6Size:][:n]
	}
	be.PutUint16(buf[12:], typeIPv4)
	clear(ip[:ipv4Size+n])
	ip[0], ip[8], ip[9] = 4<<4|ipv4Size/4, hops, proto
	be.PutUint16(ip[2:], uint16(ipv4Size+n))
	copy(ip[12:], k.far[12:])
	copy(ip[16:], k.guest[12:])
	be.PutUint16(ip[10:], ^fold(sum(ip[:ipv4Size])))
	return buf[:etherSize+ipv4Size+n], ip[ipv4Size:][:n]
}

const (
	icmpSize = 8
	// minQuote is the quoted length of a packet in an answer, in bytes, unless the packet is
	// shorter.
	minQuote = 128
)

// unreachable answers a datagram like a host without a server on the port. It quotes the packet at
// least up to the ports, by which the guest finds the socket.
func (t *Table) unreachable(frame []byte, p *packet) []byte {
	quote := frame[etherSize:]
	quote = quote[:min(len(quote), max(minQuote, p.l4-etherSize+udpSize))]
	n := icmpSize + len(quote)
	if t.reply == nil {
		t.reply = make([]byte, etherSize+ipv6Size+icmpSize+maxHeaders+udpSize)
	}
	proto, kind, code := uint8(protoICMPv6), uint8(1), uint8(4) // RFC 4443 §3.1
	if p.key.v4() {
		proto, kind, code = protoICMP, 3, 3 // RFC 792
	}
	out, b := t.begin(t.reply, &p.key, [6]byte(frame[6:]), proto, n)
	b[0], b[1] = kind, code
	copy(b[icmpSize:], quote)
	s := sum(b)
	if proto == protoICMPv6 {
		s += pseudo(&p.key, proto, n)
	}
	binary.BigEndian.PutUint16(b[2:], ^fold(s))
	return out
}

// pseudo returns the sum of the pseudo header of a packet of a flow (RFC 9293 §3.1, RFC 8200 §8.1).
func pseudo(k *key, proto uint8, n int) uint64 {
	far, guest := netip.AddrFrom16(k.far).Unmap().AsSlice(), netip.AddrFrom16(k.guest).Unmap().AsSlice()
	return sum(far) + sum(guest) + uint64(proto) + uint64(n)
}

// sum returns the sum of b's 16-bit words, as in an Internet checksum (RFC 1071).
func sum(b []byte) (s uint64) {
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
