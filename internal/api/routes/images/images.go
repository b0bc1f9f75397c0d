package images

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/listfilter"
)

// maxImageBytes limits an upload. In practice the file system's free space is the limit.
const maxImageBytes = 64 << 30

// NamePath is the input of an operation on one image.
type NamePath struct {
	Name string `path:"name" doc:"Name of the image"`
}

type imageOutput struct {
	Digest string `header:"Forkd-Digest" doc:"Digest of the image"`
	Body   api.Image
}

type headOutput struct {
	Digest string `header:"Forkd-Digest" doc:"Digest of the image"`
}

type imageRoutes struct{ images Store }

// Add adds the routes of images.
func Add(rt *routing.Router, store Store) { (&imageRoutes{store}).add(rt) }

func (s *imageRoutes) add(rt *routing.Router) {
	tags := []string{"images"}
	routing.Route(rt, huma.Operation{
		OperationID: "list-images", Method: http.MethodGet, Path: "/v1/images", Tags: tags,
		Summary: "List the images in the daemon's store", Errors: []int{400, 401},
	}, s.listImages)
	routing.Route(rt, huma.Operation{
		OperationID: "get-image", Method: http.MethodGet, Path: "/v1/images/{name}", Tags: tags,
		Summary: "Describe an image", Errors: []int{400, 401, 404},
	}, s.getImage)
	routing.Route(rt, huma.Operation{
		OperationID: "head-image", Method: http.MethodHead, Path: "/v1/images/{name}", Tags: tags,
		Summary: "The digest of an image, to decide whether to upload it", Errors: []int{400, 401, 404},
	}, func(ctx context.Context, in *NamePath) (*headOutput, error) {
		img, err := s.images.GetImage(ctx, in.Name)
		return &headOutput{Digest: img.Digest}, err
	})
	routing.Route(rt, huma.Operation{
		OperationID: "delete-image", Method: http.MethodDelete, Path: "/v1/images/{name}", Tags: tags,
		Summary: "Remove an image; snapshots made of it stay", DefaultStatus: http.StatusNoContent,
		Errors: []int{400, 401, 404, 409},
	}, func(ctx context.Context, in *NamePath) (*struct{}, error) {
		return nil, s.images.RemoveImage(ctx, in.Name)
	})
	rt.RawRoute(huma.Operation{
		OperationID: "import-image", Method: http.MethodPut, Path: "/v1/images/{name}", Tags: tags,
		Summary: "Store an image, a tar stream of its directory, and replace an existing one",
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/x-tar": {Schema: &huma.Schema{Type: "string", Format: "binary"}},
		}},
		Responses: map[string]*huma.Response{"201": rt.JSONResponse("Created", api.Image{})},
	}, s.importImage)
}

func (s *imageRoutes) listImages(ctx context.Context, in *routing.FilterInput) (*routing.Body[[]api.Image], error) {
	images, err := s.images.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	out, made := make([]api.Image, 0, len(images)), make(map[string]time.Time, len(images))
	for _, img := range images {
		out, made[img.Name] = append(out, wireImage(img)), img.CreatedAt
	}
	if out, err = routing.Filtered(in, imageFilters, out, imageEntry(made)); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b api.Image) int { return cmp.Compare(a.Name, b.Name) })
	return routing.Answer(out), nil
}

func (s *imageRoutes) getImage(ctx context.Context, in *NamePath) (*imageOutput, error) {
	img, err := s.images.GetImage(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &imageOutput{Digest: img.Digest, Body: wireImage(img)}, nil
}

func (s *imageRoutes) importImage(w http.ResponseWriter, r *http.Request) error {
	if ct := r.Header.Get("Content-Type"); ct != "" && !respond.Accepts(ct, "application/x-tar") {
		return apierror.New(api.CodeMediaType, "",
			"an image cannot be read from %s: send application/x-tar", ellipsis.Clip(ct, 80))
	}
	digest := r.Header.Get(api.HeaderDigest)
	if digest != "" && !digestPattern().MatchString(digest) {
		return apierror.New(api.CodeInvalid, "", "digest %q: want sha256: and 64 hex digits", ellipsis.Clip(digest, 80))
	}
	img, err := s.images.ImportImage(r.Context(), r.PathValue("name"), digest,
		http.MaxBytesReader(w, r.Body, maxImageBytes))
	if err != nil {
		return err
	}
	respond.JSON(w, http.StatusCreated, wireImage(img))
	return nil
}

func digestPattern() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) }

func wireImage(i Image) api.Image {
	return api.Image{
		Name: i.Name, Digest: i.Digest, SizeBytes: i.SizeBytes, CreatedAtUnix: i.CreatedAt.Unix(),
		KernelVersion: i.Kernel, MemoryMiB: i.MemoryMiB, VCPUs: i.VCPUs, Description: i.Description,
		Start: i.Start, Container: i.Container,
	}
}

func imageEntry(made map[string]time.Time) func(api.Image) listfilter.Entry {
	return func(i api.Image) listfilter.Entry { return listfilter.Entry{Name: i.Name, Made: made[i.Name]} }
}

var imageFilters = listfilter.Rules{listfilter.Name: nil, listfilter.Since: nil, listfilter.Before: nil}
