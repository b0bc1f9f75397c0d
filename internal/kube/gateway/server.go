package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/forkd/forkd/internal/kube/nodes"
)

// Server serves a gateway on its addresses.
type Server struct {
	// Gateway serves the requests.
	Gateway *Gateway
	// Front serves the requests of clients. If it is nil, Gateway does.
	Front http.Handler
	// Nodes are its nodes, and Source lists them.
	Nodes  *nodes.Set
	Source nodes.Source
	// Registry has the metrics.
	Registry *prometheus.Registry
	// Address is the address for clients. Metrics is that of the metrics, or empty.
	Address, Metrics string
	// Certificate returns the certificate for a client. If it is nil, the server speaks plain HTTP.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// DrainDelay is the time between becoming unready and refusing connections, Grace that for open requests.
	DrainDelay, Grace time.Duration
	// Log receives the server's messages.
	Log *slog.Logger
}

// Run serves until ctx ends, and then until open requests have ended or their time is over.
func (s *Server) Run(ctx context.Context) error {
	l, err := net.Listen("tcp", s.Address)
	if err != nil {
		return err
	}
	defer l.Close()
	var side net.Listener
	if s.Metrics != "" {
		if side, err = net.Listen("tcp", s.Metrics); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		defer side.Close()
	}
	return s.serve(ctx, l, side)
}

func (s *Server) serve(ctx context.Context, l, side net.Listener) error {
	// Polls and open requests go on after ctx has ended.
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { s.Nodes.Run(base, s.Source) })
	front := s.Front
	if front == nil {
		front = s.Gateway
	}
	server := s.server(base, front)
	failed := make(chan error, 2)
	// Each request needs a connection, and clients keep idle ones.
	bounded := netutil.LimitListener(l, 2*s.Gateway.cfg.MaxRequests)
	if s.Certificate != nil {
		conf := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.Certificate,
			NextProtos: []string{"h2", "http/1.1"}}
		bounded = tls.NewListener(bounded, conf)
	}
	running.Go(func() { failed <- server.Serve(bounded) })
	s.Log.Info("serving", "address", l.Addr().String(), "tls", s.Certificate != nil)
	var monitoring *http.Server
	if side != nil {
		monitoring = s.server(base, s.monitoring())
		running.Go(func() { failed <- monitoring.Serve(netutil.LimitListener(side, 64)) })
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		s.end(server)
	}
	_ = server.Close()
	if monitoring != nil {
		_ = monitoring.Close()
	}
	s.Gateway.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// server has limits against clients that send slowly. HTTP/2 without TLS is for gRPC of servers in sandboxes.
func (s *Server) server(base context.Context, h http.Handler) *http.Server {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, Protocols: p, BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug)}
}

// end gives load balancers time to notice, and then open requests time to end.
func (s *Server) end(server *http.Server) {
	s.Gateway.Close()
	s.Log.Info("stopping", "delay", s.DrainDelay, "grace", s.Grace)
	time.Sleep(s.DrainDelay)
	ctx, cancel := context.WithTimeout(context.Background(), s.Grace)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		s.Log.Warn("open requests were cut off", "error", err)
	}
}

// monitoring serves the paths that need no key.
func (s *Server) monitoring() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", s.Gateway)
	mux.Handle("GET /readyz", s.Gateway)
	return mux
}
