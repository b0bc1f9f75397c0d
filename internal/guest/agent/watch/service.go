package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/files"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
)

const (
	defaultKeepalive = 90 * time.Second
	// maxWatchers limits polled watchers, maxQueued the queued events of each.
	maxWatchers = 128
	maxQueued   = 10_000
)

// Server implements the watching part of filesystem.Filesystem.
type Server struct {
	rec     *defaults.Record
	running sync.WaitGroup

	mu       sync.Mutex
	next     int
	watchers map[string]*polled
}

// NewServer returns a server without watchers.
func NewServer(rec *defaults.Record) *Server {
	return &Server{rec: rec, watchers: map[string]*polled{}}
}

// Close ends all polled watchers and waits for them.
func (s *Server) Close() error {
	s.Forget()
	s.running.Wait()
	return nil
}

// Forget ends all polled watchers. In a clone they have no users: their creators ask the source.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.watchers {
		p.tree.close()
		delete(s.watchers, id)
	}
}

// WatchDir implements filesystem.Filesystem.
func (s *Server) WatchDir(ctx context.Context, req *connect.Request[filesystem.WatchDirRequest],
	stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	m := req.Msg
	t, err := s.open(req.Header(), m.GetPath(), options{m.GetRecursive(), m.GetIncludeEntry(), m.GetAllowNetworkMounts()})
	if err != nil {
		return err
	}
	defer t.close()
	start := &filesystem.WatchDirResponse{
		Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}},
	}
	if err := stream.Send(start); err != nil {
		return err
	}
	idle := keepalive(req.Header())
	for {
		wait, cancel := context.WithTimeout(ctx, idle)
		events, err := t.next(wait)
		cancel()
		switch {
		case err == nil:
			for _, ev := range events {
				seen := &filesystem.WatchDirResponse_Filesystem{Filesystem: ev}
				if err := stream.Send(&filesystem.WatchDirResponse{Event: seen}); err != nil {
					return err
				}
			}
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			alive := &filesystem.WatchDirResponse{
				Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}},
			}
			if err := stream.Send(alive); err != nil {
				return err
			}
		default:
			return endError(err)
		}
	}
}

func (s *Server) open(h http.Header, path string, o options) (*tree, error) {
	actor, abs, err := files.Resolve(s.rec, h, path)
	if err != nil {
		return nil, err
	}
	var t *tree
	err = actor.Do(func() (err error) {
		t, err = open(abs, o)
		return err
	})
	if err != nil {
		return nil, watchError(abs, err)
	}
	t.actor = actor
	return t, nil
}

// watchError adds a code to an error of the file system. It returns other errors unchanged.
func watchError(path string, err error) error {
	var said *connect.Error
	code := connect.CodeInternal
	switch {
	case errors.As(err, &said):
		return said
	case errors.Is(err, fs.ErrNotExist):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("path '%s' does not exist", path))
	case errors.Is(err, fs.ErrPermission):
		code = connect.CodePermissionDenied
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		code = connect.CodeInvalidArgument
	}
	return connect.NewError(code, fmt.Errorf("watch '%s': %w", path, err))
}

func endError(err error) error {
	code := connect.CodeInternal
	switch {
	case errors.Is(err, errLost):
		code = connect.CodeResourceExhausted
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	}
	return connect.NewError(code, err)
}

func keepalive(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get(agentproto.HeaderKeepalive))
	if err != nil || n <= 0 || n > 3600 {
		return defaultKeepalive
	}
	return time.Duration(n) * time.Second
}

// polled is a watcher with queued events for polling.
type polled struct {
	tree *tree

	mu     sync.Mutex
	events []*filesystem.FilesystemEvent
	err    error // reason for the end of events, or for lost events
}

// CreateWatcher implements filesystem.Filesystem.
func (s *Server) CreateWatcher(_ context.Context,
	req *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	m := req.Msg
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) >= maxWatchers {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d watchers already", maxWatchers))
	}
	t, err := s.open(req.Header(), m.GetPath(), options{m.GetRecursive(), m.GetIncludeEntry(), m.GetAllowNetworkMounts()})
	if err != nil {
		return nil, err
	}
	s.next++
	id := "w" + strconv.Itoa(s.next)
	p := &polled{tree: t}
	s.watchers[id] = p
	s.running.Go(p.collect)
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), nil
}

func (p *polled) collect() {
	for {
		events, err := p.tree.next(context.Background()) // ends when the tree is closed
		p.mu.Lock()
		if err == nil && len(p.events)+len(events) > maxQueued {
			err = errLost
		}
		if err != nil && p.err == nil {
			p.err = err
		}
		if err == nil {
			p.events = append(p.events, events...)
		}
		p.mu.Unlock()
		if err != nil && !errors.Is(err, errLost) {
			return
		}
	}
}

// GetWatcherEvents implements filesystem.Filesystem. Lost events are reported once, as an error.
// The next call returns the events queued before.
func (s *Server) GetWatcherEvents(_ context.Context,
	req *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse],
	error) {
	p, err := s.find(req.Msg.GetWatcherId())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.err; err != nil {
		if errors.Is(err, errLost) {
			p.err = nil
		}
		return nil, endError(err)
	}
	out := p.events
	p.events = nil
	return connect.NewResponse(&filesystem.GetWatcherEventsResponse{Events: out}), nil
}

func (s *Server) find(id string) (*polled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.watchers[id]; p != nil {
		return p, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher %q not found", id))
}

// RemoveWatcher implements filesystem.Filesystem.
func (s *Server) RemoveWatcher(_ context.Context,
	req *connect.Request[filesystem.RemoveWatcherRequest]) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	p, err := s.find(req.Msg.GetWatcherId())
	if err != nil {
		return nil, err
	}
	p.tree.close()
	s.mu.Lock()
	delete(s.watchers, req.Msg.GetWatcherId())
	s.mu.Unlock()
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}
