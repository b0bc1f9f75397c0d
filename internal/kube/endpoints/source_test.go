package endpoints_test

import (
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/forkd/forkd/internal/kube/endpoints"
	"github.com/forkd/forkd/internal/kube/nodes"
)

func slice(name, service string, all ...discovery.Endpoint) *discovery.EndpointSlice {
	return &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{Namespace: "forkd", Name: name,
			Labels: map[string]string{discovery.LabelServiceName: service}},
		AddressType: discovery.AddressTypeIPv4, Endpoints: all,
		Ports: []discovery.EndpointPort{{Name: new("metrics"), Port: new(int32(9090))},
			{Name: new("api"), Port: new(int32(8889))}},
	}
}

func endpoint(node, address string, ready, terminating bool) discovery.Endpoint {
	return discovery.Endpoint{NodeName: &node, Addresses: []string{address},
		Conditions: discovery.EndpointConditions{Ready: &ready, Terminating: &terminating}}
}

// list is one call of a source.
type list struct {
	entries []nodes.Entry
	err     error
}

func (l list) urls() string {
	var out []string
	for _, e := range l.entries {
		out = append(out, e.Name+"="+e.URL)
	}
	return strings.Join(out, " ")
}

func follow(t *testing.T, s endpoints.Source) <-chan list {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	lists, done := make(chan list, 100), make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx, func(e []nodes.Entry, err error) { lists <- list{e, err} })
	}()
	t.Cleanup(func() { stop(); <-done })
	return lists
}

// until waits for a list of the nodes.
func until(t *testing.T, lists <-chan list, want string) list {
	t.Helper()
	limit, last := time.After(20*time.Second), ""
	for {
		select {
		case l := <-lists:
			if l.err == nil && l.urls() == want {
				return l
			}
			last = l.urls()
		case <-limit:
			t.Fatalf("the list is %q, want %q", last, want)
		}
	}
}

func TestTheListFollowsTheEndpoints(t *testing.T) {
	client := fake.NewClientset(slice("a", "forkd-nodes", endpoint("node-b", "10.0.0.2", true, false),
		endpoint("node-a", "10.0.0.1", false, false)), // not ready: its sandboxes may be reached
		slice("x", "other", endpoint("node-x", "10.9.9.9", true, false)))
	s := endpoints.Source{Client: client, Namespace: "forkd", Service: "forkd-nodes", Port: "api", TokenFile: "/token",
		CAFile: "/ca.pem", ServerName: "forkd-node", Log: slog.New(slog.DiscardHandler)}
	lists := follow(t, s)
	first := until(t, lists, "node-a=https://10.0.0.1:8889 node-b=https://10.0.0.2:8889")
	if want := (nodes.Entry{Name: "node-a", URL: "https://10.0.0.1:8889", TokenFile: "/token", CAFile: "/ca.pem",
		ServerName: "forkd-node"}); !reflect.DeepEqual(first.entries[0], want) {
		t.Errorf("%+v, want %+v", first.entries[0], want)
	}
	change := func(s *discovery.EndpointSlice) {
		t.Helper()
		if _, err := client.DiscoveryV1().EndpointSlices("forkd").Update(t.Context(), s, meta.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The pod of node-a is replaced: the old one ends, the new one starts, in any order.
	change(slice("a", "forkd-nodes", endpoint("node-a", "10.0.0.1", true, true), endpoint("node-a", "10.0.0.7", false, false)))
	until(t, lists, "node-a=https://10.0.0.7:8889")
	// A second slice.
	if _, err := client.DiscoveryV1().EndpointSlices("forkd").Create(t.Context(),
		slice("b", "forkd-nodes", endpoint("node-c", "10.0.0.3", true, false)), meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, lists, "node-a=https://10.0.0.7:8889 node-c=https://10.0.0.3:8889")
	// Endpoints without a node or an address are no nodes. An empty list is one.
	change(slice("a", "forkd-nodes", discovery.Endpoint{Addresses: []string{"10.0.0.9"}}))
	change(slice("b", "forkd-nodes"))
	until(t, lists, "")
}

func TestWrongEndpoints(t *testing.T) {
	for name, s := range map[string]*discovery.EndpointSlice{
		"another port": {ObjectMeta: meta.ObjectMeta{Namespace: "forkd", Name: "a",
			Labels: map[string]string{discovery.LabelServiceName: "forkd-nodes"}},
			Ports: []discovery.EndpointPort{{Name: new("web"), Port: new(int32(80))}}},
		"a name that is none": slice("a", "forkd-nodes", endpoint("NODE a", "10.0.0.1", true, false)),
		"a forged address":    slice("a", "forkd-nodes", endpoint("node-a", "10.0.0.1/@evil.example", true, false)),
	} {
		t.Run(name, func(t *testing.T) {
			lists := follow(t, endpoints.Source{Client: fake.NewClientset(s), Namespace: "forkd", Service: "forkd-nodes",
				Port: "api", TokenFile: "/token", Log: slog.New(slog.DiscardHandler)})
			select {
			case l := <-lists:
				if l.err == nil {
					t.Errorf("a list of %s", l.urls())
				}
			case <-time.After(20 * time.Second):
				t.Fatal("no list")
			}
		})
	}
}
