package deviceplugin

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// server answers the kubelet.
type server struct {
	api.UnimplementedDevicePluginServer
	host  host
	count int           // units of the resource
	every time.Duration // between two looks at the devices
	log   *slog.Logger
}

// GetDevicePluginOptions returns that no other calls are needed.
func (s *server) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends the units at once, and again when their state changes.
func (s *server) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for sent, was := false, false; ; sent = true {
		err := s.host.missing()
		if healthy := err == nil; !sent || healthy != was {
			was = healthy
			if err != nil {
				s.log.Error("the node takes no new containers", "error", err)
			}
			if err := stream.Send(list(s.count, healthy)); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

// Allocate returns the devices for containers.
func (s *server) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	if err := s.host.missing(); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	out := &api.AllocateResponse{}
	for range req.GetContainerRequests() {
		out.ContainerResponses = append(out.ContainerResponses, &api.ContainerAllocateResponse{Devices: s.host.specs()})
	}
	return out, nil
}
