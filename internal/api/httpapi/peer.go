package httpapi

import (
	"context"
	"net"
	"net/http"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// peerKey is the context key for the peer of a connection.
type peerKey struct{}

// peer identifies a client of a Unix socket.
type peer struct {
	uid    uint32
	member bool // of the group whose members the listener admits
}

// withPeer records the peer of a Unix socket. The kernel stored its identity when the client
// connected (unix(7), SO_PEERCRED and SO_PEERGROUPS), so the client cannot choose it. group is the
// group to look for; nil: none.
func withPeer(ctx context.Context, c net.Conn, group *uint32) context.Context {
	if p, ok := peerOf(c, group); ok {
		return context.WithValue(ctx, peerKey{}, p)
	}
	return ctx
}

func peerOf(c net.Conn, group *uint32) (p peer, ok bool) {
	s, is := c.(syscall.Conn)
	if _, unix := c.LocalAddr().(*net.UnixAddr); !is || !unix {
		return p, false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return p, false
	}
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return
		}
		ok, p.uid = true, cred.Uid
		p.member = group != nil && (cred.Gid == *group || inPeerGroups(int(fd), *group))
	})
	return p, ok && err == nil
}

// trustedPeer reports whether a request came over a Unix socket from root, from the daemon's own
// user, or from a member of the listener's group. The first two can do everything without the daemon
// that the daemon does for them. A peer without a known uid is not trusted.
func trustedPeer(r *http.Request) bool {
	p, ok := r.Context().Value(peerKey{}).(peer)
	return ok && (p.uid == 0 || int(p.uid) == os.Geteuid() || p.member)
}
