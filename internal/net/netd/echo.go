package netd

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
)

// Types of ICMP messages that pass.
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
	icmpHeader               = 8
)

// openEcho relays echo requests through a ping socket. This needs no privilege if
// net.ipv4.ping_group_range includes forkd-net's group.
func (f *flow) openEcho() {
	verdict, ok := f.ask()
	if !ok {
		return
	}
	if verdict.Outcome != Allow || verdict.Dial.IsValid() {
		f.deny(verdict)
		return
	}
	if f.v.viaUpstream(verdict) {
		refuseUpstream(f, "echo requests", "")
		return
	}
	far, err := pingSocket(f.asked.Far.Addr())
	if err != nil {
		f.refuse(netwire.Prohibited, control.Refused,
			"echo requests need net.ipv4.ping_group_range to have forkd-net's group: "+err.Error())
		return
	}
	request, reply := byte(echoRequest4), byte(echoReply4)
	if f.asked.Far.Addr().Is6() {
		request, reply = echoRequest6, echoReply6
	}
	id := f.asked.Guest.Port()
	f.relayDatagrams(&datagrams{
		far:   far,
		toFar: func(b []byte) bool { return len(b) >= icmpHeader && b[0] == request && b[1] == 0 },
		toNear: func(b []byte) bool {
			if len(b) < icmpHeader || b[0] != reply || b[1] != 0 {
				return false
			}
			setID(b, id)
			return true
		},
	}, echoIdle)
}

// pingSocket returns a connected ping socket. The kernel assigns its identifier and allows only
// echo requests.
func pingSocket(far netip.Addr) (net.Conn, error) {
	family, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	var to unix.Sockaddr
	if far.Is4() {
		to = &unix.SockaddrInet4{Addr: far.As4()}
	} else {
		family, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
		to = &unix.SockaddrInet6{Addr: far.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "ping")
	defer file.Close()
	if err := unix.Connect(fd, to); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	c, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("take ping socket over: %w", err)
	}
	return c, nil
}

// setID puts the guest's identifier into a reply, and corrects the checksum for the difference. For
// ICMPv6 the checksum still includes the far end's addresses: the network stack of the VMM computes
// its own.
func setID(b []byte, id uint16) {
	old := binary.BigEndian.Uint16(b[4:])
	binary.BigEndian.PutUint16(b[4:], id)
	sum := uint32(^binary.BigEndian.Uint16(b[2:])) + uint32(^old) + uint32(id) // RFC 1624
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
}
