package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/agent/account"
	"github.com/forkd/forkd/internal/agent/defaults"
	"github.com/forkd/forkd/internal/agent/guestpath"
	"github.com/forkd/forkd/internal/agentproto/filesystem"
)

// maxEntries bounds one listing.
const maxEntries = 50_000

// Server serves the unary half of filesystem.Filesystem, and /files.
type Server struct {
	rec *defaults.Record
}

// NewServer makes a server that acts by rec's defaults.
func NewServer(rec *defaults.Record) *Server { return &Server{rec: rec} }

// Resolve finds the acting user and the absolute path of an RPC.
func Resolve(rec *defaults.Record, h http.Header, path string) (account.User, string, error) {
	u, err := account.Lookup(account.FromHeader(h, rec.User()))
	if err != nil {
		return u, "", connect.NewError(connect.CodeUnauthenticated, err)
	}
	abs, err := guestpath.Resolve(path, u.Home, rec.Workdir())
	if err != nil {
		return u, "", connect.NewError(connect.CodeInvalidArgument, err)
	}
	return u, abs, nil
}

// Stat implements filesystem.Filesystem.
func (s *Server) Stat(_ context.Context, req *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	_, path, err := Resolve(s.rec, req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	e, err := Entry(path, path)
	if err != nil {
		return nil, rpcError(path, err)
	}
	return connect.NewResponse(&filesystem.StatResponse{Entry: e}), nil
}

// MakeDir implements filesystem.Filesystem.
func (s *Server) MakeDir(_ context.Context, req *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	u, path, err := Resolve(s.rec, req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(path); err == nil {
		if st.IsDir() {
			return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", path))
		}
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path '%s' already exists and is not a directory", path))
	}
	if err := makeDirs(path, u); err != nil {
		return nil, rpcError(path, err)
	}
	e, err := Entry(path, path)
	if err != nil {
		return nil, rpcError(path, err)
	}
	return connect.NewResponse(&filesystem.MakeDirResponse{Entry: e}), nil
}

// Move implements filesystem.Filesystem.
func (s *Server) Move(_ context.Context, req *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	u, from, err := Resolve(s.rec, req.Header(), req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	_, to, err := Resolve(s.rec, req.Header(), req.Msg.GetDestination())
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(from); err != nil {
		return nil, rpcError(from, err)
	}
	if err := makeDirs(filepath.Dir(to), u); err != nil {
		return nil, rpcError(to, err)
	}
	if err := os.Rename(from, to); err != nil {
		return nil, rpcError(from, err)
	}
	e, err := Entry(to, to)
	if err != nil {
		return nil, rpcError(to, err)
	}
	return connect.NewResponse(&filesystem.MoveResponse{Entry: e}), nil
}

// Remove implements filesystem.Filesystem; what is not there is removed already.
func (s *Server) Remove(_ context.Context, req *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	_, path, err := Resolve(s.rec, req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if path == "/" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the root cannot be removed"))
	}
	if err := os.RemoveAll(path); err != nil {
		return nil, rpcError(path, err)
	}
	return connect.NewResponse(&filesystem.RemoveResponse{}), nil
}

// ListDir implements filesystem.Filesystem.
func (s *Server) ListDir(ctx context.Context, req *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	_, path, err := Resolve(s.rec, req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, rpcError(path, err)
	}
	st, err := os.Stat(real)
	if err != nil {
		return nil, rpcError(path, err)
	}
	if !st.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path '%s' is not a directory", path))
	}
	entries, err := list(ctx, real, path, int(max(1, min(req.Msg.GetDepth(), 1000))))
	if err != nil {
		return nil, rpcError(path, err)
	}
	return connect.NewResponse(&filesystem.ListDirResponse{Entries: entries}), nil
}

var errTooMany = fmt.Errorf("more than %d entries", maxEntries)

// list walks real to depth levels; entries are shown below the name asked for.
func list(ctx context.Context, real, shown string, depth int) ([]*filesystem.EntryInfo, error) {
	var out []*filesystem.EntryInfo
	err := filepath.WalkDir(real, func(p string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if p == real {
			return err
		}
		if err != nil {
			return nil // a folder that went away or may not be read shows no contents
		}
		rel := strings.TrimPrefix(p[len(real):], "/")
		e, err := Entry(p, filepath.Join(shown, rel))
		if err != nil {
			return nil // it ended meanwhile
		}
		if out = append(out, e); len(out) > maxEntries {
			return errTooMany
		}
		if d.IsDir() && strings.Count(rel, "/")+1 >= depth {
			return fs.SkipDir
		}
		return nil
	})
	return out, err
}

// rpcError gives an error of the file system the code that clients go by.
func rpcError(path string, err error) error {
	var notRegular *notRegularError
	code := connect.CodeInternal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("path '%s' does not exist", path))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS), errors.Is(err, unix.EBUSY):
		code = connect.CodePermissionDenied
	case errors.Is(err, unix.ENOSPC), errors.Is(err, errTooMany):
		code = connect.CodeResourceExhausted
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EINVAL),
		errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EXDEV), errors.As(err, &notRegular):
		code = connect.CodeInvalidArgument
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	}
	return connect.NewError(code, fmt.Errorf("path '%s': %w", path, err))
}
