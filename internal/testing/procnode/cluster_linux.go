package procnode

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// pace is the time between two looks at the objects.
const pace = 200 * time.Millisecond

// Config describes the nodes.
type Config struct {
	// REST reaches the API server as an administrator.
	REST *rest.Config
	// Nodes are the nodes' names, with their labels.
	Nodes map[string]map[string]string
	// Image returns the folder with an image's programs, which containers have at /usr/lib/forkd. An error is that of a
	// pull.
	Image func(image string) (string, error)
	// Devices are files below /dev of each node. They are no devices that work.
	Devices []string
}

// Cluster is the nodes, and the network of pods and services.
type Cluster struct {
	conf    Config
	t       testing.TB
	kube    *kubernetes.Clientset
	dir     string
	hosts   string // the file /etc/hosts of all pods
	context context.Context
	work    sync.WaitGroup
	network *services

	mu    sync.Mutex // guards the fields below
	nodes map[string]*node
	pods  map[types.UID]*pod
	last  int // of the pods' addresses
}

// node is one node.
type node struct {
	name, root string // root is the node's root folder
	devices    *devices
}

// Start registers the nodes, and runs their pods until the test ends.
func Start(t testing.TB, c Config) *Cluster {
	t.Helper()
	kube, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "node") // a test's own folder is too long for the paths of sockets
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Cluster{conf: c, t: t, kube: kube, dir: dir, hosts: filepath.Join(dir, "hosts"), context: ctx,
		nodes: map[string]*node{}, pods: map[types.UID]*pod{}, network: newServices()}
	t.Cleanup(func() {
		stop()
		s.work.Wait()
		s.network.close()
		for name := range s.conf.Nodes {
			for _, device := range s.conf.Devices {
				unmount(filepath.Join(dir, name, "dev", device))
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the nodes: %v", err)
		}
	})
	if err := os.WriteFile(s.hosts, nil, 0o644); err != nil { // #nosec G306 -- all users of pods read it
		t.Fatal(err)
	}
	for name, labels := range c.Nodes {
		if err := s.register(ctx, name, labels); err != nil {
			t.Fatalf("node %s: %v", name, err)
		}
	}
	s.work.Go(func() { s.repeat(s.look) })
	return s
}

func (s *Cluster) repeat(f func(context.Context) error) {
	for s.context.Err() == nil {
		if err := f(s.context); err != nil && s.context.Err() == nil {
			s.log("%v", err)
		}
		s.wait(pace)
	}
}

// wait waits for a time, or for the end. It reports whether the time has passed.
func (s *Cluster) wait(d time.Duration) bool {
	select {
	case <-s.context.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (s *Cluster) log(format string, args ...any) {
	if s.t.Context().Err() == nil {
		s.t.Logf("procnode: "+format, args...)
	}
}

// register makes the object of a node, and its folders.
func (s *Cluster) register(ctx context.Context, name string, labels map[string]string) error {
	n := &node{name: name, root: filepath.Join(s.dir, name)}
	for _, folder := range []string{"dev", "var/lib/kubelet/device-plugins", "pods"} {
		if err := os.MkdirAll(filepath.Join(n.root, folder), 0o755); err != nil { // #nosec G301 -- as on a node
			return err
		}
	}
	for _, device := range s.conf.Devices {
		if err := bind("/dev/null", filepath.Join(n.root, "dev", device), true); err != nil {
			return err
		}
	}
	all := map[string]string{core.LabelHostname: name, core.LabelOSStable: "linux"}
	for k, v := range labels {
		all[k] = v
	}
	o, err := s.kube.CoreV1().Nodes().Create(ctx, &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: all}},
		meta.CreateOptions{})
	if err != nil {
		return err
	}
	o.Status.Capacity = core.ResourceList{core.ResourceCPU: resource.MustParse("16"),
		core.ResourceMemory: resource.MustParse("64Gi"), core.ResourcePods: resource.MustParse("110")}
	o.Status.Allocatable = o.Status.Capacity
	o.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: meta.Now(), LastTransitionTime: meta.Now()}}
	if o, err = s.kube.CoreV1().Nodes().UpdateStatus(ctx, o, meta.UpdateOptions{}); err != nil {
		return err
	}
	// The control plane taints new nodes until their controller has seen them. It does not run here.
	patch := []byte(`{"spec":{"taints":null}}`)
	if _, err = s.kube.CoreV1().Nodes().Patch(ctx, o.Name, types.MergePatchType, patch, meta.PatchOptions{}); err != nil {
		return err
	}
	s.nodes[name] = n
	n.devices, err = s.serveDevices(n)
	return err
}

// look starts the pods that are new, and tells those that end.
func (s *Cluster) look(ctx context.Context) error {
	if err := s.lookAtServices(ctx); err != nil {
		return err
	}
	list, err := s.kube.CoreV1().Pods("").List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[types.UID]bool{}
	for i := range list.Items {
		o := &list.Items[i]
		n := s.nodes[o.Spec.NodeName]
		if n == nil {
			continue
		}
		seen[o.UID] = true
		p := s.pods[o.UID]
		if p == nil {
			s.last++
			p = newPod(s, n, o, fmt.Sprintf("10.88.%d.%d", s.last/250, s.last%250+1))
			s.pods[o.UID] = p
			s.work.Go(p.run)
		}
		if o.DeletionTimestamp != nil {
			p.end(time.Duration(*o.DeletionGracePeriodSeconds) * time.Second)
		}
	}
	for uid, p := range s.pods {
		if !seen[uid] {
			p.end(0)
			delete(s.pods, uid)
		}
	}
	return nil
}

// patchStatus merges fields into a pod's or a node's status.
func patchStatus(status any) []byte {
	b, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		panic(err) // plain values
	}
	return b
}

// apiAddress returns the host and the port of the API server.
func (s *Cluster) apiAddress() (host, port string) {
	u, err := url.Parse(s.conf.REST.Host)
	if err != nil {
		return "", ""
	}
	host, port, _ = net.SplitHostPort(u.Host)
	return host, port
}
