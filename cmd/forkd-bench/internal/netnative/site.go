package netnative

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// Ports of the site.
var (
	plainPort = netip.MustParseAddrPort(site + ":7000") // answers the first bytes with one byte
	bulkPort  = netip.MustParseAddrPort(site + ":7001") // the measurement takes its connections
	namedPort = netip.MustParseAddrPort(site + ":443")  // like plainPort
)

// services are the servers of the internet.
type services struct {
	closers []io.Closer
	wait    sync.WaitGroup
	bulk    chan net.Conn // accepted at bulkPort
}

func serve(internet *space) (_ *services, err error) {
	s := &services{bulk: make(chan net.Conn, 4096)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for _, port := range []netip.AddrPort{plainPort, namedPort, bulkPort} {
		l, err := internet.listen(port.String())
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, l)
		s.wait.Go(func() { s.accept(l, port == bulkPort) })
	}
	var dns net.PacketConn
	err = internet.do(func() (err error) {
		dns, err = net.ListenPacket("udp4", resolver+":53")
		return err
	})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, dns)
	s.wait.Go(func() { serveNames(dns) })
	return s, nil
}

func (s *services) close() {
	for _, c := range s.closers {
		c.Close()
	}
	s.wait.Wait()
}

func (s *services) accept(l net.Listener, bulk bool) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue
		case bulk:
			s.bulk <- c
			continue
		}
		s.wait.Go(func() {
			defer c.Close()
			if n, _ := c.Read(make([]byte, 4096)); n > 0 {
				c.Write([]byte{1})
			}
			io.Copy(io.Discard, c)
		})
	}
}

// serveNames answers DNS requests for the site's name.
func serveNames(p net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := p.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := answerName(buf[:n]); answer != nil {
			p.WriteTo(answer, from)
		}
	}
}

func answerName(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.Additionals = true, nil
	if q.Type == dnsmessage.TypeA && strings.EqualFold(q.Name.String(), siteName+".") {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 3600},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(site).As4()},
		}}
	}
	answer, _ := m.Pack()
	return answer
}

// clientHello returns the first flight of a TLS connection to the site.
func clientHello() ([]byte, error) {
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		tls.Client(near, &tls.Config{ServerName: siteName}).HandshakeContext(context.Background())
		near.Close()
	}()
	buf := make([]byte, 16<<10)
	n, err := far.Read(buf)
	return buf[:n], err
}
