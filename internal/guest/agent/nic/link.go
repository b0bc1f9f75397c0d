package nic

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/guestnet"
)

// answerLimit limits the wait for the kernel's answer. The kernel answers before the request's
// system call returns.
const answerLimit = time.Second

// Link is the guest's running device. It keeps its socket open, because every clone pays for each
// lookup and each new page.
type Link struct {
	index int

	mu     sync.Mutex // one request at a time
	socket int        // rtnetlink
	seq    uint32
}

// Open finds the guest's device. It returns nil if there is none.
func Open() (*Link, error) {
	dev, err := net.InterfaceByName(guestnet.Interface)
	if err != nil {
		return nil, nil // no device, as with an older VMM
	}
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	limit := unix.NsecToTimeval(answerLimit.Nanoseconds())
	err = errors.Join(unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit))
	if err != nil {
		unix.Close(s)
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	return &Link{index: dev.Index, socket: s}, nil
}

// Close closes the socket.
func (l *Link) Close() error { return unix.Close(l.socket) }

// SetMAC changes the hardware address of the link while it is up. The kernel then forgets all
// neighbours, including permanent ones (neigh_changeaddr). So the same request adds the gateways
// again, otherwise the guest would have to resolve them.
func (l *Link) SetMAC(mac net.HardwareAddr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	req := batch{b: make([]byte, 0, 256), seq: l.seq}
	first := req.setAddress(l.index, mac)
	for _, gw := range gateways() {
		req.setNeighbour(l.index, gw, guestnet.GatewayMAC())
	}
	req.acknowledge()
	l.seq = req.seq
	if err := unix.Sendto(l.socket, req.b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask rtnetlink: %w", err)
	}
	return l.answers(first, req.seq)
}

// answers reads the kernel's answers to the requests first to last: all errors, and the end. Only
// an error of the first counts: a modified guest, for example one without IPv6, has other
// neighbours or resolves them.
func (l *Link) answers(first, last uint32) error {
	var buf [512]byte
	var refused error
	for {
		n, _, err := unix.Recvfrom(l.socket, buf[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("hear of rtnetlink: %w", err)
		}
		for seq, errno := range errorsIn(buf[:n]) {
			if seq == first && errno != 0 {
				refused = errno
			}
			if seq == last {
				return refused
			}
		}
	}
}
