package netdns

import (
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

// ResolvConf holds the servers of a resolv.conf(5). It checks at most once a second whether the
// file has changed. It is safe for concurrent use.
type ResolvConf struct {
	path string
	now  func() time.Time

	mu      sync.Mutex // guards the fields below
	looked  time.Time
	seen    os.FileInfo // nil if the file is missing
	servers []netip.AddrPort
}

// OpenResolvConf reads a file. A missing file, or one without servers, means 127.0.0.1, as in libc.
func OpenResolvConf(path string) *ResolvConf { return &ResolvConf{path: path, now: time.Now} }

const maxServers = 8

// Servers returns the file's servers in order. The caller must not change the slice.
func (c *ResolvConf) Servers() []netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.servers != nil && now.Sub(c.looked) < time.Second && !now.Before(c.looked) {
		return c.servers
	}
	c.looked = now
	info, err := os.Stat(c.path)
	if err != nil {
		info = nil
	}
	if c.servers != nil && same(info, c.seen) {
		return c.servers
	}
	c.seen = info
	b, _ := os.ReadFile(c.path)
	c.servers = parseResolvConf(string(b))
	return c.servers
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func parseResolvConf(text string) []netip.AddrPort {
	var servers []netip.AddrPort
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" || len(servers) == maxServers {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(a, 53))
		}
	}
	if len(servers) == 0 {
		servers = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 53)}
	}
	return servers
}
