package netd

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
)

const (
	dnsPort  = 53
	httpPort = 80
	// queriesMax limits the concurrent DNS queries of a VM. Clients repeat dropped queries.
	queriesMax = 64
	// dnsIdle is how long an idle DNS connection stays open.
	dnsIdle = 30 * time.Second
	// queryIdle is the idle time of UDP: longer than a query takes, but short enough to stay far
	// below the limit of flows with one port per query.
	queryIdle = 6 * time.Second
	// queryMax is the largest accepted query over UDP.
	queryMax = 4096
	// tcpQueries limits the queries on one TCP connection.
	tcpQueries = 256
)

// serveGateway serves flows to the gateway itself: name queries and the list of refusals.
func (f *flow) serveGateway() {
	f.gateway = true
	port := f.asked.Far.Port()
	switch {
	case f.asked.Protocol == netwire.UDP && port == dnsPort:
		f.serveDNS()
	case f.asked.Protocol == netwire.TCP && port == dnsPort:
		f.serveStream(f.v.serveDNSStream)
	case f.asked.Protocol == netwire.TCP && port == httpPort:
		f.serveStream(f.v.serveHTTP)
	default:
		f.refuse(netwire.Reset, control.Denied, "the gateway has DNS at port 53 and /denied at port 80, and nothing else")
	}
}

// serveStream serves a TCP flow in this process.
func (f *flow) serveStream(serve func(context.Context, net.Conn)) {
	near := f.nearEnd(netwire.StreamFDs)
	if near == nil {
		return
	}
	end := func(hard bool) {
		near.Close()
		go f.tellEnd(endKind(hard)) // the closing goroutine must not wait for a VMM
	}
	if f.begin(&live{close: end, counts: noCounts}, true) {
		serve(f.ctx, near)
		f.end(false)
	}
}

// serveDNS answers the queries of one UDP flow, several concurrently.
func (f *flow) serveDNS() {
	near := f.nearEnd(netwire.DatagramFDs)
	if near == nil {
		return
	}
	if !f.begin(&live{close: func(bool) { near.Close() }, counts: noCounts}, true) {
		return
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	defer f.end(false)
	raw, err := near.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, queryMax+1)
	for {
		near.SetReadDeadline(time.Now().Add(queryIdle))
		n, err := near.Read(buf)
		if err != nil || n == 0 {
			return
		}
		query, _, err := netwire.ParsePacket(buf[:n])
		if err != nil {
			return
		}
		query = append([]byte(nil), query...)
		select {
		case f.v.queries <- struct{}{}:
		default:
			continue // dropped: the resolver in the guest asks again
		}
		wait.Go(func() {
			defer func() { <-f.v.queries }()
			if answer := f.v.judge.DNS(f.ctx, query, false); answer != nil {
				raw.Control(func(fd uintptr) {
					unix.Send(int(fd), append([]byte{netwire.PacketData}, answer...), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
				})
			}
		})
	}
}

// serveDNSStream answers length-prefixed queries, RFC 1035 §4.2.2, one after another.
func (v *vm) serveDNSStream(ctx context.Context, c net.Conn) {
	for range tcpQueries {
		c.SetDeadline(time.Now().Add(dnsIdle))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		answer := v.judge.DNS(ctx, query, true)
		if answer == nil || len(answer) > 0xffff {
			return
		}
		out := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(answer)), uint16(len(answer)))
		if _, err := c.Write(append(out, answer...)); err != nil {
			return
		}
	}
}
