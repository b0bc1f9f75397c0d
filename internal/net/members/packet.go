package members

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/forkd/forkd/internal/leaf/guestnet"
)

// HeaderSize is the length of the header before each Ethernet frame on a link, in bytes: that of
// virtio 1.2 §5.1.6, with the number of buffers.
const HeaderSize = 12

// MaxFrame is the longest message of a link: a header, Ethernet and an IP packet of any length.
const MaxFrame = HeaderSize + etherSize + 65535

const (
	etherSize = 14
	typeIPv4  = 0x0800
	ipv4Size  = 20
	tcpSize   = 20
	udpSize   = 8
	icmpSize  = 8

	needsChecksum = 1 // bit of the header's flags
	gsoTCPv4      = 1
	gsoECN        = 0x80
	leastSegment  = 64 // payload of a segment, in bytes: a guest must not make another split to single bytes
)

// Offsets in the header.
const (
	atFlags, atGSOType = 0, 1
	atHeaderLen        = 2
	atGSOSize          = 4
	atChecksumStart    = 6
	atChecksumOffset   = 8
	atBuffers          = 10
)

// Protocols of packets, by their number in IP.
const (
	ICMP = 1
	TCP  = 6
	UDP  = 17
)

// TCP flags (RFC 9293 §3.1).
const (
	flagFIN, flagSYN, flagRST, flagACK = 1, 2, 4, 16
)

// Types of ICMP messages (RFC 792).
const (
	echoReply   = 0
	unreachable = 3
	echoRequest = 8
)

// ErrPacket is the error for a frame that is dropped.
var ErrPacket = errors.New("not a packet of a private network")

// Packet is a checked packet. Its bytes are those of the frame it was parsed from.
type Packet struct {
	frame              []byte // with its header
	Protocol           uint8
	Src, Dst           netip.Addr
	SrcPort, DstPort   uint16 // of an echo request or reply, both are its identifier
	l4                 int    // offset in frame
	flags              uint8
	seq, ack           uint32
	payload            int
	partial            bool // the checksum field holds the sum of the pseudo header
	icmpType, icmpCode uint8
}

// Bytes returns the packet with its header.
func (p *Packet) Bytes() []byte { return p.frame }

// Size returns the length of the IP packet in bytes.
func (p *Packet) Size() int { return len(p.frame) - HeaderSize - etherSize }

// Opens reports whether the packet may begin a flow.
func (p *Packet) Opens() bool {
	switch p.Protocol {
	case TCP:
		return p.flags&(flagSYN|flagACK|flagRST|flagFIN) == flagSYN
	case ICMP:
		return p.icmpType == echoRequest
	}
	return p.Protocol == UDP
}

// IsTCP reports whether the packet is a TCP segment, and whether it is a reset.
func (p *Packet) IsTCP() (is, reset bool) { return p.Protocol == TCP, p.flags&flagRST != 0 }

// Parse checks a message of a link: IPv4 without fragments, TCP, UDP and some ICMP. It overwrites
// the header with an equal one that has no contradictions, because the receiver trusts it.
func Parse(b []byte) (p Packet, err error) {
	if len(b) < HeaderSize+etherSize+ipv4Size || len(b) > MaxFrame {
		return p, fmt.Errorf("%w: %d bytes", ErrPacket, len(b))
	}
	ip := b[HeaderSize+etherSize:]
	if binary.BigEndian.Uint16(b[HeaderSize+12:]) != typeIPv4 || ip[0]>>4 != 4 {
		return p, fmt.Errorf("%w: not IPv4", ErrPacket)
	}
	header, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	switch {
	case header < ipv4Size || total < header || total > len(ip):
		return p, fmt.Errorf("%w: lengths %d and %d in %d bytes", ErrPacket, header, total, len(ip))
	case binary.BigEndian.Uint16(ip[6:])&0xbfff != 0: // all but "do not fragment"
		return p, fmt.Errorf("%w: a fragment", ErrPacket)
	}
	p.frame = b[:HeaderSize+etherSize+total] // without padding
	p.Protocol, p.l4 = ip[9], HeaderSize+etherSize+header
	p.Src, p.Dst = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
	if err := p.parseTransport(); err != nil {
		return p, err
	}
	return p, p.checkHeader(total)
}

func (p *Packet) parseTransport() error {
	b := p.frame[p.l4:]
	switch {
	case p.Protocol == TCP && len(b) >= tcpSize:
		header := int(b[12]>>4) * 4
		if header < tcpSize || header > len(b) {
			return fmt.Errorf("%w: TCP header of %d bytes", ErrPacket, header)
		}
		p.seq, p.ack = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
		p.flags, p.payload = b[13], len(b)-header
	case p.Protocol == UDP && len(b) >= udpSize:
		if int(binary.BigEndian.Uint16(b[4:])) != len(b) {
			return fmt.Errorf("%w: UDP with another length", ErrPacket)
		}
		p.payload = len(b) - udpSize
	case p.Protocol == ICMP && len(b) >= icmpSize:
		p.icmpType, p.icmpCode = b[0], b[1]
		if p.icmpType == unreachable {
			return nil
		}
		if p.icmpCode != 0 || p.icmpType != echoRequest && p.icmpType != echoReply {
			return fmt.Errorf("%w: ICMP type %d", ErrPacket, p.icmpType)
		}
		p.SrcPort = binary.BigEndian.Uint16(b[4:])
		p.DstPort = p.SrcPort
		return nil
	default:
		return fmt.Errorf("%w: protocol %d with %d bytes", ErrPacket, p.Protocol, len(b))
	}
	p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	return nil
}

// checkHeader checks the offloads against the packet, and writes the header anew.
func (p *Packet) checkHeader(total int) error {
	h, le := p.frame[:HeaderSize], binary.LittleEndian
	flags, gso, size := h[atFlags], h[atGSOType]&^gsoECN, le.Uint16(h[atGSOSize:])
	start, offset := le.Uint16(h[atChecksumStart:]), le.Uint16(h[atChecksumOffset:])
	p.partial = flags&needsChecksum != 0
	if p.partial && (int(start) != p.l4-HeaderSize || int(offset) != p.checksumOffset()) {
		return fmt.Errorf("%w: checksum at %d+%d", ErrPacket, start, offset)
	}
	switch {
	case gso == 0 && total > guestnet.MTU:
		return fmt.Errorf("%w: %d bytes in one segment", ErrPacket, total)
	case gso == 0:
		size = 0
	case gso != gsoTCPv4 || p.Protocol != TCP || !p.partial:
		return fmt.Errorf("%w: segmentation of type %d", ErrPacket, gso)
	case size < leastSegment || p.segmentHeaders()+int(size) > guestnet.MTU:
		return fmt.Errorf("%w: segments of %d bytes", ErrPacket, size)
	}
	clear(h)
	if p.partial {
		h[atFlags] = needsChecksum
		le.PutUint16(h[atChecksumStart:], start)
		le.PutUint16(h[atChecksumOffset:], offset)
	}
	if size > 0 {
		h[atGSOType] = gso
		le.PutUint16(h[atGSOSize:], size)
		le.PutUint16(h[atHeaderLen:], uint16(etherSize+p.segmentHeaders())) // #nosec G115 -- below 134
	}
	return nil
}

// segmentHeaders returns the length of the headers of IP and TCP.
func (p *Packet) segmentHeaders() int { return p.Size() - p.payload }

// checksumOffset returns the place of the checksum in the transport's header, or -1 if a guest must
// fill it in itself.
func (p *Packet) checksumOffset() int {
	switch p.Protocol {
	case TCP:
		return 16
	case UDP:
		return 6
	}
	return -1
}
