package usernet

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// nic is the stack's only interface.
const nic tcpip.NICID = 1

// timeWait is how long an ended TCP flow keeps its ports. Segments are never late on this link, and
// a guest must not wait to reuse the ports.
const timeWait = 250 * time.Millisecond

// Congestion control is Reno. With CUBIC, gVisor's window can round down to zero segments after
// losses, and then the connection never sends again.

// newStack returns a stack. It takes packets to any address as its own, and answers echo requests
// to the gateway's addresses.
func newStack(l *link, limits Limits, clock tcpip.Clock) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocolWithOptions(ipv6.Options{})},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
		Clock:              clock,
	})
	if err := setTCP(s, limits); err != nil {
		return nil, err
	}
	if err := s.CreateNIC(nic, l); err != nil {
		return nil, fmt.Errorf("create interface: %s", err)
	}
	s.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic},
	})
	for addr, bits := range map[netip.Addr]int{
		guestnet.Gateway4: guestnet.Guest4.Bits(), guestnet.Gateway6: guestnet.GuestLinkLocal.Bits(),
		guestnet.GatewayUniqueLocal: guestnet.Guest6.Bits(),
	} {
		err := s.AddProtocolAddress(nic, tcpip.ProtocolAddress{
			Protocol: networkOf(addr), AddressWithPrefix: tcpip.AddressWithPrefix{Address: toStack(addr), PrefixLen: bits},
		}, stack.AddressProperties{})
		if err != nil {
			return nil, fmt.Errorf("add address %s: %s", addr, err)
		}
	}
	if err := s.SetPromiscuousMode(nic, true); err != nil {
		return nil, fmt.Errorf("take any destination: %s", err)
	}
	if err := s.SetSpoofing(nic, true); err != nil {
		return nil, fmt.Errorf("answer from any address: %s", err)
	}
	return s, nil
}

func setTCP(s *stack.Stack, limits Limits) error {
	initial := min(limits.BufferMax, 256<<10)
	sack, wait, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPTimeWaitTimeoutOption(timeWait),
		tcpip.TCPModerateReceiveBufferOption(true)
	retries := tcpip.TCPSynRetriesOption(4) // SYN-ACKs: the guest is adjacent
	for _, o := range []tcpip.SettableTransportProtocolOption{
		&sack, &wait, &moderate, &retries,
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: initial, Max: limits.BufferMax},
		&tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: initial, Max: limits.BufferMax},
	} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("set TCP's %T: %s", o, err)
		}
	}
	return nil
}
