package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem/filesystemconnect"
	"github.com/forkd/forkd/internal/guest/agentproto/guard"
)

// Download opens a file in a sandbox for reading. The caller closes it.
func (c *Client) Download(ctx context.Context, id, path, user string) (io.ReadCloser, error) {
	return c.tree(id, user).download(ctx, path)
}

// Upload writes a file in a sandbox and creates the directories above it. An existing file keeps
// its content until all of the new content has arrived.
func (c *Client) Upload(ctx context.Context, id, path, user string, content io.Reader) error {
	return c.tree(id, user).upload(ctx, path, 0, content)
}

// guestTree accesses the files of a sandbox with the rights of one of its users.
type guestTree struct {
	conn     *connection
	id, user string
}

func (c *connection) tree(id, user string) guestTree { return guestTree{c, id, user} }

func (t guestTree) download(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := t.conn.send(ctx, http.MethodGet, t.url(path), nil, http.Header{"Accept-Encoding": {"identity"}})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// upload writes a file with a mode. Mode 0 keeps the mode of an existing file, or is the default
// for a new one.
func (t guestTree) upload(ctx context.Context, path string, mode fs.FileMode, content io.Reader) error {
	to := t.url(path)
	if mode != 0 {
		to += fmt.Sprintf("&mode=%o", mode.Perm())
	}
	return t.conn.post(ctx, to, content)
}

// makeLink makes a symbolic link with the target text.
func (t guestTree) makeLink(ctx context.Context, path, text string) error {
	q := url.Values{"path": {path}, "target": {text}}
	if t.user != "" {
		q.Set("username", t.user)
	}
	err := t.conn.post(ctx, sandboxPath(t.id, "/agent/files/link?")+q.Encode(), http.NoBody)
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound && !e.fromDaemon {
		return &Error{
			Code: api.CodeUnsupported, Message: "the agent in the sandbox is of an older forkd and makes no links",
			Status: e.Status,
			Reason: api.ReasonAgentLinks,
		}
	}
	return err
}

// url returns the URL for reading and writing a file.
func (t guestTree) url(path string) string {
	q := url.Values{"path": {path}}
	if t.user != "" {
		q.Set("username", t.user)
	}
	return sandboxPath(t.id, "/agent/files?") + q.Encode()
}

// fileKind is the type of a guest path. For a link it is the type of the target.
type fileKind int

const (
	kindMissing fileKind = iota
	kindFile
	kindDir
	// kindOther is a socket, a FIFO, a device, or the target of a broken link.
	kindOther
)

// entry is a file, directory or link in the guest. The guest chooses all of its fields.
type entry struct {
	path   string
	kind   fileKind
	mode   fs.FileMode
	link   bool
	text   string // of a link
	target string // final target of a link; its own path if the target is missing
	shown  string // the mode column of ls -l
	trees  bool   // the agent carries whole trees
}

func entryOf(e *filesystem.EntryInfo) entry {
	out := entry{
		path: e.GetPath(), mode: fs.FileMode(e.GetMode()).Perm(), target: e.GetSymlinkTarget(),
		link: e.GetSymlinkTarget() != "",
		text: string(e.GetLinkText()), shown: e.GetPermissions(), kind: kindOther,
	}
	switch e.GetType() {
	case filesystem.FileType_FILE_TYPE_FILE:
		out.kind = kindFile
	case filesystem.FileType_FILE_TYPE_DIRECTORY:
		out.kind = kindDir
	case filesystem.FileType_FILE_TYPE_SYMLINK:
		out.link = true
	}
	if out.text == "" {
		out.text = out.target // an agent that does not send the text
	}
	return out
}

// what returns the name of the entry's type, if it is neither file nor directory.
func (e entry) what() string {
	switch {
	case e.link:
		return "a broken link, or a link to no regular file"
	case strings.HasPrefix(e.shown, "p"):
		return "a FIFO"
	case strings.HasPrefix(e.shown, "S"):
		return "a socket"
	case strings.HasPrefix(e.shown, "D"):
		return "a device"
	}
	return "neither a file nor a directory"
}

func (t guestTree) service() filesystemconnect.FilesystemClient {
	return filesystemconnect.NewFilesystemClient(guard.Client{Next: t.conn.http},
		t.conn.base+sandboxPath(t.id, "/agent"), agentOptions()...)
}

// stat describes a path in the guest. A missing path is not an error.
func (t guestTree) stat(ctx context.Context, path string) (entry, error) {
	resp, err := t.service().Stat(ctx, asUser(connect.NewRequest(&filesystem.StatRequest{Path: path}), t.user))
	var refused *connect.Error
	switch {
	case isConnectNotFound(err) && errors.As(err, &refused):
		return entry{path: path, trees: refused.Meta().Get(agentproto.HeaderTrees) != ""}, nil
	case err != nil:
		return entry{}, filesError("stat", path, t.id, err)
	}
	e := entryOf(resp.Msg.GetEntry())
	e.trees = resp.Header().Get(agentproto.HeaderTrees) != ""
	return e, nil
}

func (t guestTree) listDir(ctx context.Context, path string) ([]entry, error) {
	resp, err := t.service().ListDir(ctx, asUser(connect.NewRequest(&filesystem.ListDirRequest{Path: path,
		Depth: 1}), t.user))
	if err != nil {
		return nil, filesError("list", path, t.id, err)
	}
	var out []entry
	for _, e := range resp.Msg.GetEntries() {
		out = append(out, entryOf(e))
	}
	return out, nil
}

func (t guestTree) makeDir(ctx context.Context, path string) error {
	_, err := t.service().MakeDir(ctx, asUser(connect.NewRequest(&filesystem.MakeDirRequest{Path: path}), t.user))
	if err != nil && connect.CodeOf(err) != connect.CodeAlreadyExists {
		return filesError("make directory", path, t.id, err)
	}
	return nil
}

// isConnectNotFound reports whether the agent, not the daemon, answered "not found".
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
