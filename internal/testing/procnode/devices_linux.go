package procnode

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// devices are the device plugins of a node.
type devices struct {
	plugin.UnimplementedRegistrationServer
	cluster *Cluster
	node    *node
	folder  string

	mu      sync.Mutex // guards the fields below
	clients map[string]plugin.DevicePluginClient
}

// serveDevices serves the kubelet's socket for device plugins.
func (s *Cluster) serveDevices(n *node) (*devices, error) {
	d := &devices{cluster: s, node: n, folder: filepath.Join(n.root, "var/lib/kubelet/device-plugins"),
		clients: map[string]plugin.DevicePluginClient{}}
	l, err := net.Listen("unix", filepath.Join(d.folder, "kubelet.sock"))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	plugin.RegisterRegistrationServer(server, d)
	s.work.Go(func() { _ = server.Serve(l) })
	s.work.Go(func() {
		<-s.context.Done()
		server.Stop()
	})
	return d, nil
}

// Register implements plugin.RegistrationServer.
func (d *devices) Register(_ context.Context, r *plugin.RegisterRequest) (*plugin.Empty, error) {
	conn, err := grpc.NewClient("unix:"+filepath.Join(d.folder, r.Endpoint),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := plugin.NewDevicePluginClient(conn)
	d.mu.Lock()
	d.clients[r.ResourceName] = client
	d.mu.Unlock()
	d.cluster.work.Go(func() {
		defer conn.Close()
		if err := d.follow(client, r.ResourceName); err != nil {
			d.cluster.log("%s on %s: %v", r.ResourceName, d.node.name, err)
		}
	})
	return &plugin.Empty{}, nil
}

// follow writes the units of a resource into the node's status until the plugin ends.
func (d *devices) follow(client plugin.DevicePluginClient, name string) error {
	stream, err := client.ListAndWatch(d.cluster.context, &plugin.Empty{})
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil // it has ended
		}
		healthy := 0
		for _, device := range r.Devices {
			if device.Health == plugin.Healthy {
				healthy++
			}
		}
		units := map[string]string{name: strconv.Itoa(healthy)}
		_, err = d.cluster.kube.CoreV1().Nodes().Patch(d.cluster.context, d.node.name, types.MergePatchType,
			patchStatus(map[string]any{"capacity": units, "allocatable": units}), meta.PatchOptions{}, "status")
		if err != nil {
			return err
		}
	}
}

// allocate asks the plugin of a resource for the devices of a container.
func (d *devices) allocate(ctx context.Context, name string) ([]*plugin.DeviceSpec, error) {
	d.mu.Lock()
	client := d.clients[name]
	d.mu.Unlock()
	if client == nil {
		return nil, fmt.Errorf("no device plugin offers %s", name)
	}
	r, err := client.Allocate(ctx, &plugin.AllocateRequest{
		ContainerRequests: []*plugin.ContainerAllocateRequest{{DevicesIds: []string{"0"}}}})
	if err != nil {
		return nil, err
	}
	return r.ContainerResponses[0].Devices, nil
}
