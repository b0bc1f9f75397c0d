package endpoints

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	lister "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

// Source follows a Service's EndpointSlices. It implements nodes.Source.
type Source struct {
	// Client reaches the API server. It must be allowed to list and watch EndpointSlices in the namespace.
	Client kubernetes.Interface
	// Namespace and Service name the headless Service of the nodes.
	Namespace, Service string
	// Port is the name of the port. Empty means the first one.
	Port string
	// TokenFile and CAFile are those of nodes.Entry, for all nodes. Without a CAFile, nodes are reached by plain HTTP.
	TokenFile, CAFile string
	// ServerName is the name in the certificates of all nodes.
	ServerName string
	// Log receives errors. It must not be nil.
	Log *slog.Logger
}

const (
	calm     = 200 * time.Millisecond // changes within this time make one new list
	patience = 15 * time.Second       // before a first list that does not come is an error
)

// Run implements nodes.Source.
func (s Source) Run(ctx context.Context, changed func([]nodes.Entry, error)) {
	factory := informers.NewSharedInformerFactoryWithOptions(s.Client, 0, informers.WithNamespace(s.Namespace),
		informers.WithTweakListOptions(func(o *meta.ListOptions) {
			o.LabelSelector = labels.Set{discovery.LabelServiceName: s.Service}.String()
		}))
	resource := factory.Discovery().V1().EndpointSlices()
	informer := resource.Informer()
	news := make(chan struct{}, 1)
	note := func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { note() },
		UpdateFunc: func(any, any) { note() }, DeleteFunc: func(any) { note() }})
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			s.Log.Warn("the nodes cannot be read from the API server; the last list stays in use", "error", err)
		})
	}
	if err != nil {
		changed(nil, err)
		return
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for late := time.After(patience); !informer.HasSynced(); ctxsleep.For(ctx, calm) {
		select {
		case <-ctx.Done():
			return
		case <-late:
			changed(nil, fmt.Errorf("the API server does not list the endpoints of service %s/%s", s.Namespace, s.Service))
		default:
		}
	}
	for ctx.Err() == nil {
		changed(s.list(resource.Lister()))
		select {
		case <-ctx.Done():
		case <-news:
			ctxsleep.For(ctx, calm)
		}
	}
}

// list returns the nodes of all slices.
func (s Source) list(from lister.EndpointSliceLister) ([]nodes.Entry, error) {
	all, err := from.EndpointSlices(s.Namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	best := map[string]candidate{}
	for _, slice := range all {
		port, ok := s.port(slice.Ports)
		if !ok {
			return nil, fmt.Errorf("service %s/%s has no TCP port %q", s.Namespace, s.Service, s.Port)
		}
		for _, e := range slice.Endpoints {
			c, ok := candidateOf(e, port)
			if !ok {
				continue
			}
			if was, ok := best[c.node]; !ok || c.rank > was.rank || c.rank == was.rank && c.address < was.address {
				best[c.node] = c
			}
		}
	}
	var out []nodes.Entry
	for _, node := range slices.Sorted(maps.Keys(best)) {
		out = append(out, s.entry(best[node]))
	}
	return out, nodes.Check(out)
}

// port returns the number of the port by its name.
func (s Source) port(ports []discovery.EndpointPort) (int32, bool) {
	for _, p := range ports {
		if p.Port != nil && (s.Port == "" || p.Name != nil && *p.Name == s.Port) {
			return *p.Port, true
		}
	}
	return 0, len(ports) == 0 // a slice without endpoints may have no ports
}

// candidate is an endpoint of a node.
type candidate struct {
	node, address string
	rank          int // the highest of a node is used
}

func candidateOf(e discovery.Endpoint, port int32) (candidate, bool) {
	if e.NodeName == nil || len(e.Addresses) == 0 || port == 0 {
		return candidate{}, false
	}
	c := candidate{node: *e.NodeName, address: net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(port)))}
	if t := e.Conditions.Terminating; t == nil || !*t {
		c.rank += 2 // its pod stays
	}
	if r := e.Conditions.Ready; r == nil || *r {
		c.rank++
	}
	return c, true
}

func (s Source) entry(c candidate) nodes.Entry {
	u := url.URL{Scheme: "http", Host: c.address}
	e := nodes.Entry{Name: c.node, TokenFile: s.TokenFile}
	if s.CAFile != "" {
		u.Scheme, e.CAFile, e.ServerName = "https", s.CAFile, s.ServerName
	}
	e.URL = u.String()
	return e
}

var _ nodes.Source = Source{}
