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

// answerLimit bounds the wait for the kernel, which answers before the request's
// system call is over.
const answerLimit = time.Second

// Link is the guest's device while it runs. It keeps what it needs open, since each thing
// that a clone looks up, and each page it takes, is one that every clone pays for.
type Link struct {
	index int

	mu     sync.Mutex // one request at a time
	socket int        // rtnetlink
	seq    uint32
}

// Open finds the guest's device; nil if it has none.
func Open() (*Link, error) {
	dev, err := net.InterfaceByName(guestnet.Interface)
	if err != nil {
		return nil, nil // as of a VMM of earlier days
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

// Close frees what is open.
func (l *Link) Close() error { return unix.Close(l.socket) }

// SetMAC gives the link another hardware address while it is up. The kernel forgets all
// neighbours then, also permanent ones (neigh_changeaddr), so the same request brings the
// gateways back: without them the guest would have to ask who they are.
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

// answers reads what the kernel says to the requests first to last: all errors, and the end.
// Only an error of the first matters: a guest that was changed, say to have no IPv6, has
// other neighbours, or asks for them.
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
