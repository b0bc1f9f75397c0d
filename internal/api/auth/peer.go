package auth

import (
	"context"
	"net/http"
	"os"

	"github.com/forkd/forkd/internal/sys/peercred"
)

// peerKey is the context key for the peer of a connection.
type peerKey struct{}

// WithPeer returns a context with the peer of the Unix socket that a request came over.
func WithPeer(ctx context.Context, p peercred.Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// PeerOf returns the peer of the Unix socket that a request came over. It returns false for other connections.
func PeerOf(ctx context.Context) (peercred.Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(peercred.Peer)
	return p, ok
}

// trustedPeer reports whether a request came over a Unix socket from root, from the daemon's own
// user, or from a member of the listener's group. The first two can do everything without the daemon
// that the daemon does for them. A peer without a known uid is not trusted.
func trustedPeer(r *http.Request) bool {
	p, ok := PeerOf(r.Context())
	return ok && (p.UID == 0 || int(p.UID) == os.Geteuid() || p.Member)
}
