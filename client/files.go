package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/agentproto/filesystem"
	"github.com/forkd/forkd/internal/agentproto/filesystem/filesystemconnect"
)

// Download opens a file in a sandbox; the caller closes it.
func (c *Client) Download(ctx context.Context, id, path, user string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, filesPath(id, path, user), nil, http.Header{"Accept-Encoding": {"identity"}})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Upload writes a file in a sandbox, with the directories above it.
func (c *Client) Upload(ctx context.Context, id, path, user string, content io.Reader) error {
	resp, err := c.send(ctx, http.MethodPost, filesPath(id, path, user), content, http.Header{"Content-Type": {"application/octet-stream"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return err
}

func filesPath(id, path, user string) string {
	q := url.Values{"path": {path}}
	if user != "" {
		q.Set("username", user)
	}
	return sandboxPath(id, "/agent/files?") + q.Encode()
}

// fileKind is what a path in the guest is.
type fileKind int

const (
	kindMissing fileKind = iota
	kindFile
	kindDir
	kindLink
)

// entry is a file, directory or link in the guest. Everything in it is the
// guest's word.
type entry struct {
	path, target string
	kind         fileKind
	mode         uint32
	size         int64
}

func entryOf(e *filesystem.EntryInfo) entry {
	out := entry{path: e.GetPath(), mode: e.GetMode(), size: e.GetSize(), target: e.GetSymlinkTarget(), kind: kindFile}
	switch e.GetType() {
	case filesystem.FileType_FILE_TYPE_DIRECTORY:
		out.kind = kindDir
	case filesystem.FileType_FILE_TYPE_SYMLINK:
		out.kind = kindLink
	}
	if out.target != "" {
		out.kind = kindLink
	}
	return out
}

func (c *Client) files(id string) filesystemconnect.FilesystemClient {
	return filesystemconnect.NewFilesystemClient(c.http, c.base+sandboxPath(id, "/agent"), agentOptions()...)
}

// stat looks at a path in the guest; a missing one is no error.
func (c *Client) stat(ctx context.Context, id, path, user string) (entry, error) {
	resp, err := c.files(id).Stat(ctx, asUser(connect.NewRequest(&filesystem.StatRequest{Path: path}), user))
	switch {
	case isConnectNotFound(err):
		return entry{path: path}, nil
	case err != nil:
		return entry{}, filesError("stat", path, id, err)
	}
	return entryOf(resp.Msg.GetEntry()), nil
}

func (c *Client) listDir(ctx context.Context, id, path, user string) ([]entry, error) {
	resp, err := c.files(id).ListDir(ctx, asUser(connect.NewRequest(&filesystem.ListDirRequest{Path: path, Depth: 1}), user))
	if err != nil {
		return nil, filesError("list", path, id, err)
	}
	var out []entry
	for _, e := range resp.Msg.GetEntries() {
		out = append(out, entryOf(e))
	}
	return out, nil
}

func (c *Client) makeDir(ctx context.Context, id, path, user string) error {
	_, err := c.files(id).MakeDir(ctx, asUser(connect.NewRequest(&filesystem.MakeDirRequest{Path: path}), user))
	if err != nil && connect.CodeOf(err) != connect.CodeAlreadyExists {
		return filesError("make directory", path, id, err)
	}
	return nil
}

// isConnectNotFound is true for the agent's answer, not for the daemon's.
func isConnectNotFound(err error) bool {
	var own *Error
	return err != nil && !errors.As(err, &own) && connect.CodeOf(err) == connect.CodeNotFound
}

func asUser[T any](r *connect.Request[T], user string) *connect.Request[T] {
	if user != "" {
		r.Header().Set(api.HeaderAgentUser, user)
	}
	return r
}

func filesError(verb, path, id string, err error) error {
	return agentError(verb+" "+id+":"+path, err)
}
