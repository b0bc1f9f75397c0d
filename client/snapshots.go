package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"github.com/forkd/forkd/api"
)

// CreateSnapshot boots and warms up a parent, and stores it as a snapshot. progress is called at
// the begin and end of each step. It may be nil.
func (c *Client) CreateSnapshot(ctx context.Context, req api.CreateSnapshotRequest,
	progress func(api.Step)) (api.SnapshotInfo, error) {
	return makeSnapshot(ctx, &c.connection, "/v1/snapshots", req, progress)
}

// makeSnapshot requests a stream if progress is not nil.
func makeSnapshot(ctx context.Context, c *connection, path string, req any,
	progress func(api.Step)) (api.SnapshotInfo, error) {
	var info api.SnapshotInfo
	if progress == nil {
		return info, c.call(ctx, http.MethodPost, path, req, &info)
	}
	resp, err := c.stream(ctx, path, req)
	if err != nil {
		return info, err
	}
	defer resp.Body.Close()
	return lastStep(c.url, json.NewDecoder(resp.Body), progress)
}

// lastStep reads a progress stream to its result.
func lastStep(url string, lines *json.Decoder, progress func(api.Step)) (api.SnapshotInfo, error) {
	for {
		var step api.Step
		switch err := lines.Decode(&step); {
		case errors.Is(err, io.EOF):
			return api.SnapshotInfo{}, brokenOff(url, http.MethodPost, io.ErrUnexpectedEOF)
		case err != nil:
			if ended := endOf(err); ended != nil {
				return api.SnapshotInfo{}, ended
			}
			return api.SnapshotInfo{}, fmt.Errorf("read the daemon's progress: %w", err)
		case step.Error != nil:
			return api.SnapshotInfo{}, streamed(step.Error)
		case step.Snapshot != nil:
			return *step.Snapshot, nil
		}
		progress(step)
	}
}

// ListSnapshots returns all snapshots, sorted by tag. Filters select some, as for ListSandboxes.
func (c *Client) ListSnapshots(ctx context.Context, filters ...string) ([]api.SnapshotInfo, error) {
	var out []api.SnapshotInfo
	return out, c.call(ctx, http.MethodGet, listPath("/v1/snapshots", filters), nil, &out)
}

// Snapshot returns the description of one snapshot, with sizes and lineage.
func (c *Client) Snapshot(ctx context.Context, tag string) (api.SnapshotDetail, error) {
	var out api.SnapshotDetail
	return out, c.call(ctx, http.MethodGet, snapshotPath(tag, "/info"), nil, &out)
}

// DeleteOptions choose the treatment of snapshots built on a deleted one. At most one may be set.
type DeleteOptions struct {
	Cascade bool // delete them too
	Force   bool // keep them
}

// DeleteSnapshot removes a snapshot. If other snapshots are built on it and no option is set, it
// returns an error with api.CodeConflict.
func (c *Client) DeleteSnapshot(ctx context.Context, tag string, opt DeleteOptions) error {
	q := url.Values{}
	for name, on := range map[string]bool{"cascade": opt.Cascade, "force": opt.Force} {
		if on {
			q.Set(name, strconv.FormatBool(on))
		}
	}
	path := snapshotPath(tag, "")
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil)
}

// VerifySnapshot makes the daemon read all of a snapshot. The result lists damage. progress is
// called with the bytes read and the total. It may be nil. Older daemons report no progress.
func (c *Client) VerifySnapshot(ctx context.Context, tag string,
	progress func(done, total int64)) (api.VerifyResult, error) {
	if progress == nil {
		var out api.VerifyResult
		return out, c.call(ctx, http.MethodPost, snapshotPath(tag, "/verify"), nil, &out)
	}
	resp, err := c.send(ctx, http.MethodPost, snapshotPath(tag, "/verify"), nil,
		http.Header{"Accept": {"application/x-ndjson, application/json"}})
	if err != nil {
		return api.VerifyResult{}, err
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "application/x-ndjson" {
		var out api.VerifyResult
		err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&out)
		return out, cmp.Or(endOf(err), err)
	}
	for lines := json.NewDecoder(resp.Body); ; {
		var step api.Step
		switch err := lines.Decode(&step); {
		case errors.Is(err, io.EOF):
			return api.VerifyResult{}, brokenOff(c.url, http.MethodGet, io.ErrUnexpectedEOF)
		case err != nil:
			return api.VerifyResult{}, cmp.Or(endOf(err), fmt.Errorf("read the daemon's progress: %w", err))
		case step.Error != nil:
			return api.VerifyResult{}, streamed(step.Error)
		case step.Verify != nil:
			return *step.Verify, nil
		}
		progress(step.Bytes, step.Total)
	}
}

// Pools returns the number of ready shells (pre-created VMMs) for each snapshot.
func (c *Client) Pools(ctx context.Context) ([]api.Pool, error) {
	var out []api.Pool
	return out, c.call(ctx, http.MethodGet, "/v1/pools", nil, &out)
}

// SetPool sets the number of shells to keep ready for a snapshot, 0 to api.MaxPool. The daemon
// makes them in the background.
func (c *Client) SetPool(ctx context.Context, tag string, size int) error {
	return c.call(ctx, http.MethodPut, snapshotPath(tag, "/pool"), api.SetPoolRequest{Size: size}, nil)
}

func snapshotPath(tag, rest string) string { return "/v1/snapshots/" + url.PathEscape(tag) + rest }
