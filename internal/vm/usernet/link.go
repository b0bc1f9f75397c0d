package usernet

import (
	"sync"
	"sync/atomic"

	virtionet "github.com/forkd/forkd/internal/vm/virtio/net"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// gsoMax is the largest packet passed by the stack to the guest in one piece. It includes the
// stack's headers.
const gsoMax = 64 << 10

// frameMax is the largest frame in either direction.
const frameMax = header.EthernetMinimumSize + 65535

// frames holds buffers in which a packet's pieces become a frame.
var frames = sync.Pool{New: func() any { return new([frameMax]byte) }}

// link is the stack's end of the guest's link. It resolves no addresses: there is one guest, and
// its MAC is the one of its last frame.
type link struct {
	mtu   uint32
	plain bool // no offload towards the guest
	out   *outbox
	mac   *atomic.Uint64 // the guest's MAC

	dispatcher atomic.Pointer[stack.NetworkDispatcher]
}

var (
	_ stack.LinkEndpoint = (*link)(nil)
	_ stack.GSOEndpoint  = (*link)(nil)
)

// deliver passes a checked packet to the stack. The bytes are copied.
func (l *link) deliver(protocol tcpip.NetworkProtocolNumber, packet []byte) {
	d := l.dispatcher.Load()
	if d == nil {
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	defer pkt.DecRef()
	(*d).DeliverNetworkPacket(protocol, pkt)
}

// WritePackets implements stack.LinkWriter.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	for _, pkt := range pkts.AsSlice() {
		l.write(pkt)
	}
	return pkts.Len(), nil
}

func (l *link) write(pkt *stack.PacketBuffer) {
	size := header.EthernetMinimumSize + pkt.Size()
	if size > frameMax {
		return
	}
	buf := frames.Get().(*[frameMax]byte)
	defer frames.Put(buf)
	frame := buf[:size]
	encodeEthernet(frame, macOf(l.mac.Load()), uint16(pkt.NetworkProtocolNumber))
	at := header.EthernetMinimumSize
	for _, s := range pkt.AsSlices() {
		at += copy(frame[at:], s)
	}
	l.out.send(offloadOf(pkt), frame)
}

// offloadOf returns the header for the checksum and segmentation work of pkt left to the guest.
func offloadOf(pkt *stack.PacketBuffer) (h virtionet.Header) {
	gso := pkt.GSOOptions
	if gso.Type == stack.GSONone || !gso.NeedsCsum {
		return h
	}
	h.Flags = virtionet.NeedsChecksum
	h.ChecksumStart = header.EthernetMinimumSize + gso.L3HdrLen
	h.ChecksumOffset = gso.CsumOffset
	if pkt.Data().Size() <= int(gso.MSS) {
		return h
	}
	h.GSOType = virtionet.GSOTCPv4
	if gso.Type == stack.GSOTCPv6 {
		h.GSOType = virtionet.GSOTCPv6
	}
	h.GSOSize = gso.MSS
	h.HeaderLen = uint16(header.EthernetMinimumSize + pkt.HeaderSize())
	return h
}

// SupportedGSO implements stack.GSOEndpoint.
func (l *link) SupportedGSO() stack.SupportedGSO {
	if l.plain {
		return stack.GSONotSupported
	}
	return stack.HostGSOSupported
}

// GSOMaxSize implements stack.GSOEndpoint.
func (*link) GSOMaxSize() uint32 { return gsoMax }

// Capabilities implements stack.LinkEndpoint. Checksums of packets from the guest are already
// verified.
func (*link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

// MTU implements stack.LinkEndpoint.
func (l *link) MTU() uint32 { return l.mtu }

// SetMTU implements stack.LinkEndpoint. It does nothing, because the MTU is fixed.
func (*link) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint. The frame's own header is written before the
// packet.
func (*link) MaxHeaderLength() uint16 { return 0 }

// LinkAddress implements stack.LinkEndpoint.
func (*link) LinkAddress() tcpip.LinkAddress { return tcpip.LinkAddress(gatewayMAC[:]) }

// SetLinkAddress implements stack.LinkEndpoint. The gateway's address does not change.
func (*link) SetLinkAddress(tcpip.LinkAddress) {}

// Attach implements stack.LinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		l.dispatcher.Store(nil)
		return
	}
	l.dispatcher.Store(&d)
}

// IsAttached implements stack.LinkEndpoint.
func (l *link) IsAttached() bool { return l.dispatcher.Load() != nil }

// Wait implements stack.LinkEndpoint. It returns immediately.
func (*link) Wait() {}

// Close implements stack.LinkEndpoint.
func (*link) Close() {}

// SetOnCloseAction implements stack.LinkEndpoint.
func (*link) SetOnCloseAction(func()) {}

// ARPHardwareType implements stack.LinkEndpoint. ARP is answered outside of the stack.
func (*link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader implements stack.LinkEndpoint.
func (*link) AddHeader(*stack.PacketBuffer) {}

// ParseHeader implements stack.LinkEndpoint.
func (*link) ParseHeader(*stack.PacketBuffer) bool { return true }
