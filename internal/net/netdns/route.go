package netdns

import (
	"net"
	"sync"
	"time"
)

// IPv6Route reports whether the host has an IPv6 route to the internet. It checks again after some
// seconds. It is safe for concurrent use. The zero value is ready to use.
type IPv6Route struct {
	mu     sync.Mutex // guards the fields below
	looked time.Time
	has    bool
}

const routeFresh = 5 * time.Second

// Has looks for a route to a public address. Connecting a UDP socket sends no packets.
func (r *IPv6Route) Has() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.looked.IsZero() || now.Sub(r.looked) > routeFresh {
		r.looked = now
		conn, err := net.Dial("udp6", "[2001:4860:4860::8888]:53")
		if r.has = err == nil; r.has {
			_ = conn.Close()
		}
	}
	return r.has
}
