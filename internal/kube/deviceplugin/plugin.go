package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

// Config configures a plugin.
type Config struct {
	Resource string        // name of the resource, such as forkd.dev/kvm
	Dir      string        // the kubelet's folder of plugins' sockets
	Devices  []Device      // what a container gets
	HostRoot string        // the node's root folder; empty means /
	Count    int           // units of the resource, so the number of containers with the devices
	Every    time.Duration // between two looks at the devices
	Log      *slog.Logger  // not nil
}

const (
	kubeletSocket = "kubelet.sock"
	registerLimit = 10 * time.Second // for one registration
	watchEvery    = time.Second      // between two looks at the sockets
	retryMost     = 30 * time.Second // between two tries to register
)

// Run offers the devices until ctx ends. It waits for a kubelet, and registers anew with each start of one.
func Run(ctx context.Context, c Config) error {
	info, err := os.Stat(c.Dir)
	if err != nil {
		return fmt.Errorf("the folder of plugins: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("the folder of plugins: %s is no folder", c.Dir)
	}
	retry := watchEvery
	for ctx.Err() == nil {
		registered, err := c.serve(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case registered:
			retry = watchEvery
			c.Log.Info("the kubelet has restarted")
		default:
			c.Log.Warn("the plugin is not registered", "error", err, "again_in", retry)
			ctxsleep.For(ctx, retry)
			retry = min(2*retry, retryMost)
		}
	}
	return nil
}

// endpoint is the name of the plugin's socket.
func (c Config) endpoint() string {
	return strings.NewReplacer("/", "_", ".", "-").Replace(c.Resource) + ".sock"
}

// serve serves one kubelet until it has gone. It reports whether the plugin was registered with it.
func (c Config) serve(ctx context.Context) (registered bool, err error) {
	path := filepath.Join(c.Dir, c.endpoint())
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a plugin that was killed
		return false, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return false, err
	}
	s := grpc.NewServer()
	root := c.HostRoot
	if root == "" {
		root = "/"
	}
	api.RegisterDevicePluginServer(s, &server{host: host{root, c.Devices}, count: c.Count, every: c.Every, log: c.Log})
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	defer func() {
		s.Stop() // removes the socket
		<-served
	}()
	kubelet := filepath.Join(c.Dir, kubeletSocket)
	before, err := os.Stat(kubelet)
	if err != nil {
		return false, fmt.Errorf("no kubelet: %w", err)
	}
	if err := c.register(ctx, kubelet); err != nil {
		return false, fmt.Errorf("register: %w", err)
	}
	c.Log.Info("the plugin is registered", "resource", c.Resource, "units", c.Count)
	own, err := os.Stat(path)
	for ; err == nil && ctx.Err() == nil; ctxsleep.For(ctx, watchEvery) {
		var now fs.FileInfo
		if now, err = os.Stat(path); err != nil || !os.SameFile(own, now) {
			break // the kubelet starts
		}
		if now, err := os.Stat(kubelet); err == nil && !os.SameFile(before, now) {
			break
		}
	}
	return true, nil
}

func (c Config) register(ctx context.Context, kubelet string) error {
	conn, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, registerLimit)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{Version: api.Version,
		Endpoint: c.endpoint(), ResourceName: c.Resource, Options: &api.DevicePluginOptions{}})
	return err
}
