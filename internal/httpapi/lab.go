package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/bench"
	"github.com/forkd/forkd/internal/diskbench"
)

// Lab measures on the daemon's host.
type Lab interface {
	// Floor makes n VMs of a snapshot's size with bare ioctls and says how long that took.
	Floor(ctx context.Context, tag string, n int) (time.Duration, error)
	// Copy says how long a plain copy of so many bytes takes.
	Copy(bytes int64) (time.Duration, error)
	Host() (bench.Host, error)
	// Disk measures the file system that the sandboxes' disks lie in.
	Disk(mib, randomOps int) (diskbench.Figures, error)
}

type diskInput struct{ Body api.DiskRequest }

type copyInput struct{ Body api.CopyRequest }

type floorInput struct {
	TagPath
	Body api.FloorRequest
}

func (s *Server) addLab() {
	tags := []string{"bench"}
	route(s, huma.Operation{
		OperationID: "get-host", Method: http.MethodGet, Path: "/v1/host", Tags: tags,
		Summary: "Describe the daemon's host",
	}, func(context.Context, *none) (*body[api.Host], error) {
		h, err := s.lab.Host()
		return &body[api.Host]{api.Host{CPUs: h.CPUs, MemAvailableKiB: h.MemAvailable >> 10}}, err
	})
	route(s, huma.Operation{
		OperationID: "measure-floor", Method: http.MethodPost, Path: "/v1/snapshots/{tag}/floor", Tags: tags,
		Summary: "Make n VMs of the snapshot's size with bare ioctls, and say how long that took",
		Errors:  []int{400, 401, 404, 409},
	}, func(ctx context.Context, in *floorInput) (*body[api.Floor], error) {
		took, err := s.lab.Floor(ctx, in.Tag, in.Body.N)
		return &body[api.Floor]{api.Floor{WallMS: float64(took.Microseconds()) / 1000}}, err
	})
	route(s, huma.Operation{
		OperationID: "measure-copy", Method: http.MethodPost, Path: "/v1/host/copy", Tags: tags,
		Summary: "Copy so many bytes in memory, and say how long that took",
		Errors:  []int{400, 401},
	}, func(_ context.Context, in *copyInput) (*body[api.Floor], error) {
		took, err := s.lab.Copy(in.Body.Bytes)
		return &body[api.Floor]{api.Floor{WallMS: float64(took.Microseconds()) / 1000}}, err
	})
	route(s, huma.Operation{
		OperationID: "measure-disk", Method: http.MethodPost, Path: "/v1/host/disk", Tags: tags,
		Summary: "Write and read a file beside the sandboxes' disks, and say how fast that was",
		Errors:  []int{400, 401, 507},
	}, func(_ context.Context, in *diskInput) (*body[api.DiskFigures], error) {
		f, err := s.lab.Disk(in.Body.MiB, in.Body.RandomOps)
		return &body[api.DiskFigures]{api.DiskFigures(f)}, err
	})
}
