package procnode

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// services forward connections to the addresses of Services to their ready pods.
type services struct {
	mu     sync.Mutex // guards the fields below
	open   map[string]*forward
	closed bool
}

// forward is one address of a Service.
type forward struct {
	listener net.Listener
	next     int
	backends []string
}

func newServices() *services { return &services{open: map[string]*forward{}} }

// set sets the pods of an address.
func (s *services) set(address string, backends []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.open[address]
	if f == nil && !s.closed {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		f = &forward{listener: l}
		s.open[address] = f
		go s.accept(f)
	}
	if f != nil {
		f.backends = backends
	}
	return nil
}

func (s *services) accept(f *forward) {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		go s.join(f, c)
	}
}

// join connects a client to the next pod. A pod that refuses the connection is an error of the client's, as with kube-proxy.
func (s *services) join(f *forward, c net.Conn) {
	defer c.Close()
	s.mu.Lock()
	backend := ""
	if len(f.backends) > 0 {
		backend = f.backends[f.next%len(f.backends)]
		f.next++
	}
	s.mu.Unlock()
	to, err := net.Dial("tcp", backend)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, c)
		_ = to.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, to)
}

func (s *services) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, f := range s.open {
		f.listener.Close()
	}
}

// lookAtServices writes the names of Services, and sets their pods.
func (s *Cluster) lookAtServices(ctx context.Context) error {
	list, err := s.kube.CoreV1().Services("").List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	ends, err := s.kube.DiscoveryV1().EndpointSlices("").List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	names := "127.0.0.1 localhost\n"
	for _, o := range list.Items {
		if o.Spec.ClusterIP == "" || o.Spec.ClusterIP == core.ClusterIPNone || o.Name == "kubernetes" {
			continue
		}
		full := o.Name + "." + o.Namespace
		names += fmt.Sprintf("%s %s.svc.cluster.local %s.svc %s\n", o.Spec.ClusterIP, full, full, full)
		for _, p := range o.Spec.Ports {
			err := s.network.set(net.JoinHostPort(o.Spec.ClusterIP, strconv.Itoa(int(p.Port))), backends(ends.Items, &o, p.Name))
			if err != nil {
				return fmt.Errorf("service %s: %w", full, err)
			}
		}
	}
	if old, err := os.ReadFile(s.hosts); err == nil && string(old) == names {
		return nil
	}
	return os.WriteFile(s.hosts, []byte(names), 0o644) // #nosec G306 -- all users of pods read it
}

// backends returns the addresses of a Service's ready pods.
func backends(list []discovery.EndpointSlice, o *core.Service, port string) (out []string) {
	for _, slice := range list {
		if slice.Namespace != o.Namespace || slice.Labels[discovery.LabelServiceName] != o.Name {
			continue
		}
		i := slices.IndexFunc(slice.Ports, func(p discovery.EndpointPort) bool { return p.Name != nil && *p.Name == port })
		if i < 0 || slice.Ports[i].Port == nil {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				out = append(out, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*slice.Ports[i].Port))))
			}
		}
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
