package usernet

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	virtionet "github.com/forkd/forkd/internal/vm/virtio/net"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

var guestMAC = MAC(guestnet.ParentMAC())

// guest is a second stack at the other end of the link. It resolves the gateway's addresses like
// Linux.
type guest struct {
	*stack.Stack
	engine *Engine
	wire   *guestLink
	in     chan []byte // frames with their headers, as in a ring
	loss   float64     // loss rate of frames in each direction
	full   sync.Mutex
	wanted bool // Receive has refused a frame
	wg     sync.WaitGroup
	end    context.CancelFunc
}

type guestLink struct{ *channel.Endpoint }

func (guestLink) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }
func (guestLink) GSOMaxSize() uint32                      { return gsoMax }

// guestConfig describes a guest.
type guestConfig struct {
	plain bool // no offload in either direction
	loss  float64
	ring  int // frames; 0 for 256
	Config
}

// newGuest returns an engine and its guest.
func newGuest(t testing.TB, c guestConfig) *guest {
	t.Helper()
	orElse(&c.ring, 256)
	g := &guest{in: make(chan []byte, c.ring), loss: c.loss}
	c.Guest = g
	c.Plain = func() bool { return c.plain }
	g.engine = New(c.Config)
	g.wire = &guestLink{channel.New(1024, guestnet.MTU, tcpip.LinkAddress(guestMAC[:]))}
	g.wire.LinkEPCapabilities = stack.CapabilityResolutionRequired
	if !c.plain {
		g.wire.LinkEPCapabilities |= stack.CapabilityRXChecksumOffload
		g.wire.SupportedGSOKind = stack.HostGSOSupported
	}
	g.Stack = guestStack(t, g.wire)
	ctx, cancel := context.WithCancel(context.Background())
	g.end = cancel
	g.wg.Add(2)
	go g.transmit(ctx)
	go g.receive(ctx)
	t.Cleanup(g.close)
	return g
}

func guestStack(t testing.TB, l stack.LinkEndpoint) *stack.Stack {
	t.Helper()
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	if err := s.CreateNIC(1, l); err != nil {
		t.Fatal(err)
	}
	for _, a := range []tcpip.ProtocolAddress{
		{Protocol: header.IPv4ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: toStack(guest4), PrefixLen: 29}},
		{Protocol: header.IPv6ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: toStack(guest6), PrefixLen: 64}},
	} {
		if err := s.AddProtocolAddress(1, a, stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
	}
	s.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, Gateway: toStack(guestnet.Gateway4), NIC: 1},
		{Destination: header.IPv6EmptySubnet, Gateway: toStack(guestnet.Gateway6), NIC: 1},
	})
	return s
}

func (g *guest) close() {
	g.engine.Close()
	g.Stack.Close()
	g.end()
	g.wg.Wait()
	g.wire.Close()
	g.Stack.Wait()
}

// transmit passes the guest's frames to the engine.
func (g *guest) transmit(ctx context.Context) {
	defer g.wg.Done()
	for {
		pkt := g.wire.ReadContext(ctx)
		if pkt == nil {
			return
		}
		frame := make([]byte, header.EthernetMinimumSize, header.EthernetMinimumSize+pkt.Size())
		to := broadcastMAC
		if a := pkt.EgressRoute.RemoteLinkAddress; len(a) == 6 {
			to = MAC([]byte(a))
		}
		copy(frame, to[:])
		copy(frame[6:], guestMAC[:])
		binary.BigEndian.PutUint16(frame[12:], uint16(pkt.NetworkProtocolNumber))
		for _, s := range pkt.AsSlices() {
			frame = append(frame, s...)
		}
		h := offloadOf(pkt)
		pkt.DecRef()
		if rand.Float64() >= g.loss {
			g.engine.Transmit(h, frame)
		}
	}
}

// Receive implements virtionet.Guest.
func (g *guest) Receive(h virtionet.Header, frame []byte) bool {
	b := make([]byte, virtionet.HeaderSize+len(frame))
	h.Encode(b)
	copy(b[virtionet.HeaderSize:], frame)
	g.full.Lock()
	defer g.full.Unlock()
	select {
	case g.in <- b:
		return true
	default:
		g.wanted = true
		return false
	}
}

// receive passes received frames to the guest's stack, occasionally in another order.
func (g *guest) receive(ctx context.Context) {
	defer g.wg.Done()
	var late []byte
	for {
		select {
		case b := <-g.in:
			g.room()
			switch {
			case rand.Float64() < g.loss:
			case late == nil && rand.Float64() < g.loss:
				late = b
			default:
				g.inject(b)
				if late != nil {
					g.inject(late)
					late = nil
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

func (g *guest) room() {
	g.full.Lock()
	wanted := g.wanted
	g.wanted = false
	g.full.Unlock()
	if wanted {
		g.engine.Writable()
	}
}

func (g *guest) inject(b []byte) {
	frame := b[virtionet.HeaderSize:]
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame[header.EthernetMinimumSize:])})
	defer pkt.DecRef()
	g.wire.InjectInbound(tcpip.NetworkProtocolNumber(binary.BigEndian.Uint16(frame[12:])), pkt)
}

// eventually polls until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}
