package deviceplugin_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/forkd/forkd/internal/kube/deviceplugin"
)

// kubelet is the registration side of a kubelet.
type kubelet struct {
	api.UnimplementedRegistrationServer
	dir        string
	registered chan *api.RegisterRequest
	stop       func()
}

func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	k.registered <- r
	return &api.Empty{}, nil
}

// startKubelet removes all sockets of dir, as a kubelet does when it starts.
func startKubelet(t *testing.T, dir string) *kubelet {
	t.Helper()
	old, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{dir: dir, registered: make(chan *api.RegisterRequest, 8)}
	s := grpc.NewServer()
	api.RegisterRegistrationServer(s, k)
	go s.Serve(l)
	k.stop = s.Stop
	t.Cleanup(s.Stop)
	return k
}

// plugin waits for a registration, and returns a connection to the plugin.
func (k *kubelet) plugin(t *testing.T) api.DevicePluginClient {
	t.Helper()
	select {
	case r := <-k.registered:
		if r.Version != "v1beta1" || r.ResourceName != "forkd.dev/kvm" || r.Endpoint != filepath.Base(r.Endpoint) {
			t.Fatalf("registered %v", r)
		}
		conn, err := grpc.NewClient("unix:"+filepath.Join(k.dir, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return api.NewDevicePluginClient(conn)
	case <-time.After(20 * time.Second):
		t.Fatal("the plugin did not register")
		return nil
	}
}

// node is a node's root folder. Its devices are links to /dev/null, a character device.
func node(t *testing.T, devices ...string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "dev/net"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		if err := os.Symlink("/dev/null", filepath.Join(root, d)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// run runs a plugin until the test ends.
func run(t *testing.T, dir, root string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- deviceplugin.Run(ctx, deviceplugin.Config{Resource: "forkd.dev/kvm", Dir: dir, HostRoot: root, Count: 3,
			Devices: []deviceplugin.Device{{Path: "/dev/kvm"}, {Path: "/dev/net/tun", Optional: true},
				{Path: "/dev/userfaultfd", Optional: true}}, Every: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "forkd*")); len(left) > 0 {
			t.Errorf("the plugin left %v", left)
		}
	})
}

func health(t *testing.T, s grpc.ServerStreamingClient[api.ListAndWatchResponse]) (out []string) {
	t.Helper()
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Devices {
		out = append(out, d.ID+" "+d.Health)
	}
	return out
}

func TestAContainerGetsTheDevices(t *testing.T) {
	dir, root := t.TempDir(), node(t, "dev/kvm", "dev/userfaultfd")
	k := startKubelet(t, dir)
	run(t, dir, root)
	p := k.plugin(t)
	watch, err := p.ListAndWatch(t.Context(), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if got := health(t, watch); !slices.Equal(got, []string{"0 Healthy", "1 Healthy", "2 Healthy"}) {
		t.Errorf("units: %v", got)
	}
	request := &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"0"}}}}
	r, err := p.Allocate(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, d := range r.ContainerResponses[0].Devices {
		paths = append(paths, d.HostPath+" "+d.ContainerPath+" "+d.Permissions)
	}
	if want := []string{"/dev/kvm /dev/kvm rw", "/dev/userfaultfd /dev/userfaultfd rw"}; !slices.Equal(paths, want) {
		t.Errorf("devices: %v, want %v", paths, want)
	}

	if err := os.Remove(filepath.Join(root, "dev/kvm")); err != nil { // the module is unloaded
		t.Fatal(err)
	}
	if got := health(t, watch); !slices.Equal(got, []string{"0 Unhealthy", "1 Unhealthy", "2 Unhealthy"}) {
		t.Errorf("units without KVM: %v", got)
	}
	if _, err := p.Allocate(t.Context(), request); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("Allocate without KVM: %v", err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(root, "dev/kvm")); err != nil {
		t.Fatal(err)
	}
	if got := health(t, watch); !slices.Equal(got, []string{"0 Healthy", "1 Healthy", "2 Healthy"}) {
		t.Errorf("units after the return: %v", got)
	}
}

func TestAPluginWaitsForTheKubeletAndItsRestarts(t *testing.T) {
	dir, root := t.TempDir(), node(t, "dev/kvm")
	if err := os.WriteFile(filepath.Join(dir, "forkd-dev_kvm.sock"), nil, 0o600); err != nil { // of a killed plugin
		t.Fatal(err)
	}
	run(t, dir, root)
	k := startKubelet(t, dir)
	for range 2 {
		watch, err := k.plugin(t).ListAndWatch(t.Context(), &api.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		health(t, watch)
		k.stop()
		k = startKubelet(t, dir)
	}
	k.plugin(t)
}
