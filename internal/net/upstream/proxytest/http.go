package proxytest

import (
	"cmp"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// HTTP serves an HTTP proxy with the same settings and records. Reply is a status, unless 0.
func HTTP(t *testing.T, l net.Listener, reply int, set ...func(*Server)) *Server {
	t.Helper()
	s := &Server{listener: l}
	for _, do := range set {
		do(s)
	}
	connect := func(w http.ResponseWriter, r *http.Request) { s.connect(w, r, reply) }
	server := &http.Server{Handler: http.HandlerFunc(connect), ReadHeaderTimeout: time.Minute}
	s.wait.Go(func() { server.Serve(l) })
	t.Cleanup(func() { server.Close(); s.Close() })
	return s
}

func (s *Server) connect(w http.ResponseWriter, r *http.Request, reply int) {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(s.User+":"+s.Password))
	if s.User != "" && r.Header.Get("Proxy-Authorization") != want {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	host, text, err := net.SplitHostPort(r.Host)
	port, _ := strconv.ParseUint(text, 10, 16)
	to, ok := s.note(host, uint16(port))
	if reply != 0 || r.Method != http.MethodConnect || err != nil || !ok {
		w.WriteHeader(cmp.Or(reply, http.StatusBadGateway))
		return
	}
	far, err := net.Dial("tcp", to.String()) // #nosec G704 -- a proxy for tests
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	s.keep(near)
	io.WriteString(near, "HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n")
	back := make(chan struct{})
	go func() {
		defer close(back)
		io.Copy(near, far)
		near.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(far, buffered)
	far.(*net.TCPConn).CloseWrite()
	<-back
}
