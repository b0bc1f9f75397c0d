package ruled

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// FollowHost keeps the floor's set of the host's own addresses current. The set is current when
// FollowHost returns, and after each change reported by the kernel, until ctx ends.
func FollowHost(ctx context.Context, floor *netpolicy.Floor, warn func(error)) (wait func(), err error) {
	updates := make(chan netlink.AddrUpdate, 64)
	err = netlink.AddrSubscribeWithOptions(updates, ctx.Done(), netlink.AddrSubscribeOptions{
		ErrorCallback: func(err error) {
			if ctx.Err() == nil {
				warn(fmt.Errorf("follow the host's addresses: %w", err))
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("follow the host's addresses: %w", err)
	}
	if err := setHost(floor); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range updates { // closed when ctx has ended
			if err := setHost(floor); err != nil {
				warn(err)
			}
		}
	}()
	return func() { <-done }, nil
}

func setHost(floor *netpolicy.Floor) error {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list the host's addresses: %w", err)
	}
	var own []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr())
		}
	}
	floor.SetHostAddrs(own)
	return nil
}
