package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/forkd/forkd/internal/guest/agentproto/volumewire"
)

// ErrNoVolumeFiles is the error of an agent that is older than the routes for files of volumes.
var ErrNoVolumeFiles = errors.New("the guest's agent is older than this daemon and does not serve files of volumes: " +
	"make its snapshot again from the image, and fork that")

// VolumeFiles are the files of a volume in a guest. Refusals are a *FileError.
type VolumeFiles struct {
	c    *Client
	root string
}

// VolumeFiles returns the files of the volume that is mounted on root.
func (c *Client) VolumeFiles(root string) VolumeFiles { return VolumeFiles{c, root} }

// Stat describes a file.
func (v VolumeFiles) Stat(ctx context.Context, path string) (volumewire.Entry, error) {
	return v.entry(ctx, http.MethodGet, volumewire.StatPath, v.query(path), nil)
}

// List describes the files of a directory, down to a depth of at least 1.
func (v VolumeFiles) List(ctx context.Context, path string, depth int) ([]volumewire.Entry, error) {
	q := v.query(path)
	q.Set(volumewire.QueryDepth, strconv.Itoa(depth))
	resp, err := v.do(ctx, http.MethodGet, volumewire.ListPath, q, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, volumewire.MaxListBytes+1))
	if err != nil {
		return nil, fmt.Errorf("files of a volume: %w", said(err))
	}
	return volumewire.ParseList(b)
}

// MakeDir makes a directory. With parents it makes missing ones, too, and accepts a directory that exists.
func (v VolumeFiles) MakeDir(ctx context.Context, path string, a volumewire.Attrs,
	parents bool) (volumewire.Entry, error) {
	return v.entry(ctx, http.MethodPost, volumewire.DirPath, v.change(path, a, parents), nil)
}

// Change sets the owner and the mode of a file.
func (v VolumeFiles) Change(ctx context.Context, path string, a volumewire.Attrs) (volumewire.Entry, error) {
	return v.entry(ctx, http.MethodPatch, volumewire.StatPath, v.change(path, a, false), nil)
}

// Remove removes a file, or a directory with its content.
func (v VolumeFiles) Remove(ctx context.Context, path string) error {
	resp, err := v.do(ctx, http.MethodDelete, volumewire.Path, v.query(path), nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Read opens a file, which the caller closes, and returns its size in bytes.
func (v VolumeFiles) Read(ctx context.Context, path string) (content io.ReadCloser, bytes int64, err error) {
	resp, err := v.do(ctx, http.MethodGet, volumewire.ContentPath, v.query(path), nil)
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}

// Write stores r as a file, which appears complete or not at all. With parents it makes missing directories.
func (v VolumeFiles) Write(ctx context.Context, path string, a volumewire.Attrs, parents bool,
	r io.Reader) (volumewire.Entry, error) {
	return v.entry(ctx, http.MethodPut, volumewire.ContentPath, v.change(path, a, parents), r)
}

func (v VolumeFiles) query(path string) url.Values {
	return url.Values{volumewire.QueryRoot: {v.root}, volumewire.QueryPath: {path}}
}

func (v VolumeFiles) change(path string, a volumewire.Attrs, force bool) url.Values {
	q := v.query(path)
	for name, n := range map[string]*uint32{volumewire.QueryUID: a.UID, volumewire.QueryGID: a.GID} {
		if n != nil {
			q.Set(name, strconv.FormatUint(uint64(*n), 10))
		}
	}
	if a.Mode != nil {
		q.Set(volumewire.QueryMode, strconv.FormatUint(uint64(*a.Mode), 8))
	}
	if force {
		q.Set(volumewire.QueryForce, "true")
	}
	return q
}

// entry sends a request that is answered with a file's description.
func (v VolumeFiles) entry(ctx context.Context, method, path string, q url.Values,
	body io.Reader) (volumewire.Entry, error) {
	resp, err := v.do(ctx, method, path, q, body)
	if err != nil {
		return volumewire.Entry{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 128<<10))
	if err != nil {
		return volumewire.Entry{}, fmt.Errorf("files of a volume: %w", said(err))
	}
	return volumewire.ParseEntry(b)
}

// do returns an answer with status 200, or a *FileError.
func (v VolumeFiles) do(ctx context.Context, method, path string, q url.Values,
	body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, baseURL+path+"?"+q.Encode(), body)
	if err != nil {
		return nil, fmt.Errorf("files of a volume: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	return v.c.plain(req, "files of a volume", volumewire.Header, ErrNoVolumeFiles)
}
