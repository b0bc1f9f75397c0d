package httpapi

import (
	"context"
	"net"
	"net/http"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// peerKey is the context key for the uid of a connection's peer.
type peerKey struct{}

// withPeer records the uid of the peer of a Unix socket. The kernel stored it when the client
// connected (unix(7), SO_PEERCRED), so the client cannot choose it.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if uid, ok := peerUID(c); ok {
		return context.WithValue(ctx, peerKey{}, uid)
	}
	return ctx
}

func peerUID(c net.Conn) (uid uint32, ok bool) {
	s, is := c.(syscall.Conn)
	if _, unix := c.LocalAddr().(*net.UnixAddr); !is || !unix {
		return 0, false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			uid, ok = cred.Uid, true
		}
	})
	return uid, ok && err == nil
}

// trustedPeer reports whether a request came over a Unix socket from root or from the daemon's own
// user. Both can do everything without the daemon that the daemon does for them. A peer without a
// known uid is not trusted.
func trustedPeer(r *http.Request) bool {
	uid, ok := r.Context().Value(peerKey{}).(uint32)
	return ok && (uid == 0 || int(uid) == os.Geteuid())
}
