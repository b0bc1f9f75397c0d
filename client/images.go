package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/forkd/forkd/api"
)

// ListImages returns the images in the daemon's store, sorted by name. Filters select some, as for ListSandboxes.
func (c *Client) ListImages(ctx context.Context, filters ...string) ([]api.Image, error) {
	var out []api.Image
	return out, c.call(ctx, http.MethodGet, listPath("/v1/images", filters), nil, &out)
}

// Image returns the description of one image.
func (c *Client) Image(ctx context.Context, name string) (api.Image, error) {
	var out api.Image
	return out, c.call(ctx, http.MethodGet, imagePath(name), nil, &out)
}

// HasImage reports whether the daemon has an image with this name and digest. A missing image is
// not an error.
func (c *Client) HasImage(ctx context.Context, name, digest string) (bool, error) {
	resp, err := c.send(ctx, http.MethodHead, imagePath(name), nil, nil)
	switch {
	case IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	resp.Body.Close()
	return resp.Header.Get(api.HeaderDigest) == digest, nil
}

// ImportImage sends an image as a tar stream. If digest is not empty, the daemon refuses content
// with another digest.
func (c *Client) ImportImage(ctx context.Context, name, digest string, tar io.Reader) (api.Image, error) {
	h := http.Header{"Content-Type": {"application/x-tar"}}
	if digest != "" {
		h.Set(api.HeaderDigest, digest)
	}
	resp, err := c.send(ctx, http.MethodPut, imagePath(name), tar, h)
	if err != nil {
		return api.Image{}, fmt.Errorf("send image %s: %w", name, err)
	}
	defer resp.Body.Close()
	var out api.Image
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&out); err != nil {
		return api.Image{}, fmt.Errorf("decode the daemon's answer about image %s: %w", name, err)
	}
	return out, nil
}

// RemoveImage removes an image from the daemon's store.
func (c *Client) RemoveImage(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, imagePath(name), nil, nil)
}

func imagePath(name string) string { return "/v1/images/" + url.PathEscape(name) }
