package tenants

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/volumes"
	"github.com/forkd/forkd/internal/store/volume"
)

// VolumePath is the input of an operation on one volume.
type VolumePath struct {
	Volume string `path:"volume" doc:"Name of the volume"`
}

type createVolumeInput struct {
	Body api.CreateVolumeRequest
}

type snapshotVolumeInput struct {
	VolumePath
	Body api.SnapshotVolumeRequest
}

// volumeRoutes make, list and remove volumes. A caller sees only its own.
type volumeRoutes struct{ all volumes.Tenants }

func (v *volumeRoutes) add(rt *routing.Router) {
	tags := []string{"volumes"}
	routing.Route(rt, huma.Operation{
		OperationID: "list-volumes", Method: http.MethodGet, Path: "/v1/volumes", Tags: tags,
		Summary: "List the caller's volumes", Errors: []int{401, 403},
	}, v.list)
	routing.Route(rt, huma.Operation{
		OperationID: "get-volume", Method: http.MethodGet, Path: "/v1/volumes/{volume}", Tags: tags,
		Summary: "Describe a volume", Errors: []int{400, 401, 403, 404},
	}, v.get)
	routing.Route(rt, huma.Operation{
		OperationID: "create-volume", Method: http.MethodPost, Path: "/v1/volumes", Tags: tags,
		Summary:     "Make a volume",
		Description: "A new volume has an empty file system, or the content of another volume, of which it copies nothing.",
		Errors:      []int{400, 401, 403, 404, 409, 429, 507}, DefaultStatus: http.StatusCreated,
	}, v.create)
	routing.Route(rt, huma.Operation{
		OperationID: "snapshot-volume", Method: http.MethodPost, Path: "/v1/volumes/{volume}/snapshot", Tags: tags,
		Summary: "Keep the present content of a volume as another one, which cannot be written",
		Errors:  []int{400, 401, 403, 404, 409, 429, 507}, DefaultStatus: http.StatusCreated,
	}, v.snapshot)
	routing.Route(rt, huma.Operation{
		OperationID: "remove-volume", Method: http.MethodDelete, Path: "/v1/volumes/{volume}", Tags: tags,
		Summary: "Remove a volume that no sandbox has", DefaultStatus: http.StatusNoContent,
		Errors: []int{400, 401, 403, 404, 409},
	}, v.remove)
}

func (v *volumeRoutes) list(ctx context.Context, _ *struct{}) (*routing.Body[[]api.Volume], error) {
	out := []api.Volume{}
	for _, found := range v.all.List(principal.From(ctx).Tenant) {
		out = append(out, wireVolume(found))
	}
	return routing.Answer(out), nil
}

func (v *volumeRoutes) get(ctx context.Context, in *VolumePath) (*routing.Body[api.Volume], error) {
	return answerVolume(v.all.Get(principal.From(ctx).Tenant, in.Volume))
}

// defaultVolume is the size of a volume, in bytes, unless the request sets it.
const defaultVolume = 10 << 30

func (v *volumeRoutes) create(ctx context.Context, in *createVolumeInput) (*routing.Body[api.Volume], error) {
	owner := principal.From(ctx).Tenant
	requestinfo.From(ctx).Object = in.Body.Name
	if in.Body.From == "" {
		size := in.Body.SizeMiB << 20
		if size == 0 {
			size = defaultVolume
		}
		return answerVolume(v.all.Create(owner, in.Body.Name, size))
	}
	if in.Body.SizeMiB != 0 {
		return nil, apierror.New(api.CodeInvalid, "", "a clone has the size of its volume: leave out size_mib")
	}
	return answerVolume(v.all.Clone(owner, in.Body.From, in.Body.Name, false))
}

func (v *volumeRoutes) snapshot(ctx context.Context, in *snapshotVolumeInput) (*routing.Body[api.Volume], error) {
	requestinfo.From(ctx).Object = in.Volume
	return answerVolume(v.all.Clone(principal.From(ctx).Tenant, in.Volume, in.Body.Name, true))
}

func (v *volumeRoutes) remove(ctx context.Context, in *VolumePath) (*routing.None, error) {
	requestinfo.From(ctx).Object = in.Volume
	return nil, v.all.Remove(principal.From(ctx).Tenant, in.Volume)
}

func answerVolume(v volume.Volume, err error) (*routing.Body[api.Volume], error) {
	if err != nil {
		return nil, err
	}
	return routing.Answer(wireVolume(v)), nil
}

func wireVolume(v volume.Volume) api.Volume {
	return api.Volume{ID: v.ID, Name: v.Name, Tenant: v.Owner, SizeMiB: v.Bytes >> 20, StoredBytes: v.StoredBytes,
		CreatedUnix: unixOr0(v.Created), From: v.From, ReadOnly: v.ReadOnly, Sandbox: v.Holder}
}
