package client

import (
	"context"
	"io/fs"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
)

// Files holds the requests about single files and directories of sandboxes.
type Files struct {
	// Client sends the requests.
	Client *Client
}

// FileInfo describes an entry of a directory in a sandbox. The guest chooses all of its fields.
type FileInfo struct {
	Name, Path string
	Type       string // file, directory, link or other; the type of a link's target is not reported
	Size       int64  // in bytes
	Mode       fs.FileMode
	ModTime    time.Time
	Target     string // final target of a link
}

// ListDir returns the entries of a directory in a sandbox, with the rights of a user. If user is
// empty, it is the image's.
func (f Files) ListDir(ctx context.Context, id, path, user string) ([]FileInfo, error) {
	req := &filesystem.ListDirRequest{Path: path, Depth: 1}
	resp, err := f.Client.tree(id, user).service().ListDir(ctx, asUser(connect.NewRequest(req), user))
	if err != nil {
		return nil, filesError("list", path, id, err)
	}
	out := make([]FileInfo, 0, len(resp.Msg.GetEntries()))
	for _, e := range resp.Msg.GetEntries() {
		out = append(out, fileInfo(e))
	}
	return out, nil
}

func fileInfo(e *filesystem.EntryInfo) FileInfo {
	known := entryOf(e)
	out := FileInfo{
		Name: e.GetName(), Path: e.GetPath(), Size: e.GetSize(), Mode: known.mode,
		ModTime: e.GetModifiedTime().AsTime(), Target: known.target, Type: "other",
	}
	switch {
	case known.link:
		out.Type = "link"
	case known.kind == kindFile:
		out.Type = "file"
	case known.kind == kindDir:
		out.Type = "directory"
	}
	return out
}
