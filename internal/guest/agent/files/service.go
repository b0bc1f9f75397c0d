package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
)

// Server implements the unary part of filesystem.Filesystem, and /files.
type Server struct {
	rec *defaults.Record
}

// NewServer returns a server with the defaults in rec.
func NewServer(rec *defaults.Record) *Server { return &Server{rec: rec} }

// Stat implements filesystem.Filesystem.
func (s *Server) Stat(_ context.Context,
	req *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	a, path, err := Resolve(s.rec, req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	e, err := a.entry(path, nil)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.StatResponse{Entry: e}), nil
}

// entry calls did as the actor, unless it is nil, and then describes path.
func (a Actor) entry(path string, did func() error) (e *filesystem.EntryInfo, err error) {
	err = a.Do(func() (err error) {
		if did != nil {
			if err := did(); err != nil {
				return err
			}
		}
		e, err = Entry(path, path)
		return err
	})
	if err != nil {
		return nil, rpcError(path, err)
	}
	return e, nil
}

// MakeDir implements filesystem.Filesystem.
func (s *Server) MakeDir(_ context.Context,
	req *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	a, path, err := Resolve(s.rec, req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	e, err := a.entry(path, func() error {
		if at, err := Open(path, unix.O_PATH); err == nil {
			defer at.Close()
			return existsError(path, at)
		}
		d, err := a.makeDirs(path)
		if err != nil {
			return err
		}
		return d.Close()
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.MakeDirResponse{Entry: e}), nil
}

func existsError(path string, at *os.File) error {
	if st, err := at.Stat(); err == nil && st.IsDir() {
		return connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", path))
	}
	return connect.NewError(connect.CodeInvalidArgument,
		fmt.Errorf("path '%s' already exists and is not a directory", path))
}

// Move implements filesystem.Filesystem.
func (s *Server) Move(_ context.Context,
	req *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	a, from, err := Resolve(s.rec, req.Header(), req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	_, to, err := Resolve(s.rec, req.Header(), req.Msg.GetDestination())
	if err != nil {
		return nil, err
	}
	e, err := a.entry(to, func() error { return a.move(from, to) })
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.MoveResponse{Entry: e}), nil
}

func (a Actor) move(from, to string) error {
	source, name, err := openParent(from)
	if err != nil {
		return rpcError(from, err)
	}
	defer source.Close()
	at, err := openAt(source, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil { // checked before directories are created
		return rpcError(from, err)
	}
	_ = at.Close()
	target, err := a.makeDirs(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer target.Close()
	if err := unix.Renameat(int(source.Fd()), name, int(target.Fd()), filepath.Base(to)); err != nil {
		return rpcError(from, err)
	}
	return nil
}

// Remove implements filesystem.Filesystem. Removing a missing file is not an error.
func (s *Server) Remove(_ context.Context,
	req *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	a, path, err := Resolve(s.rec, req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if path == "/" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the root cannot be removed"))
	}
	if err := a.Do(func() error { return remove(path) }); err != nil {
		return nil, rpcError(path, err)
	}
	return connect.NewResponse(&filesystem.RemoveResponse{}), nil
}

// remove removes path and everything below it.
func remove(path string) error {
	dir, name, err := openParent(path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	// RemoveAll follows no link below its argument.
	err = os.RemoveAll(filepath.Join(self(dir), name))
	var at *fs.PathError
	if errors.As(err, &at) { // its path is our internal one in /proc
		if rest, ok := strings.CutPrefix(at.Path, self(dir)+"/"+name+"/"); ok {
			return fmt.Errorf("remove '%s' in it: %w", rest, at.Err)
		}
		return at.Err
	}
	return err
}

// ListDir implements filesystem.Filesystem.
func (s *Server) ListDir(ctx context.Context,
	req *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	a, path, err := Resolve(s.rec, req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	l := lister{ctx: ctx}
	err = a.Do(func() error { return l.list(path, int(max(1, min(req.Msg.GetDepth(), 1000)))) })
	if err != nil {
		return nil, rpcError(path, err)
	}
	return connect.NewResponse(&filesystem.ListDirResponse{Entries: l.found}), nil
}

// rpcError maps an error of the file system to the code that clients expect.
func rpcError(path string, err error) error {
	var notRegular *notRegularError
	var said *connect.Error
	code := connect.CodeInternal
	switch {
	case errors.As(err, &said):
		return said
	case errors.Is(err, fs.ErrNotExist):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("path '%s' does not exist", path))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS), errors.Is(err, unix.EBUSY):
		code = connect.CodePermissionDenied
	case errors.Is(err, unix.ENOSPC), errors.Is(err, errTooMany):
		code = connect.CodeResourceExhausted
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.EINVAL),
		errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ETXTBSY),
		errors.As(err, &notRegular):
		code = connect.CodeInvalidArgument
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	}
	return connect.NewError(code, fmt.Errorf("path '%s': %w", path, err))
}
