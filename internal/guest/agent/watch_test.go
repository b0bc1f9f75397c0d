package agent_test

import (
	"context"
	"os"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

func processOf(cmd string, args ...string) *process.StartRequest {
	return &process.StartRequest{Process: &process.ProcessConfig{Cmd: cmd, Args: args}}
}

func TestWatchDir(t *testing.T) {
	b := startAgent(t)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := b.Filesystem().WatchDir(ctx, connect.NewRequest(&filesystem.WatchDirRequest{Path: dir, Recursive: true, IncludeEntry: true}))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Receive() || s.Msg().GetStart() == nil {
		t.Fatalf("first event: %v, %v", s.Msg(), s.Err())
	}
	await := func(name string, kind filesystem.EventType) *filesystem.FilesystemEvent {
		t.Helper()
		for s.Receive() {
			if ev := s.Msg().GetFilesystem(); ev.GetName() == name && ev.GetType() == kind {
				return ev
			}
		}
		t.Fatalf("no %v of %s: %v", kind, name, s.Err())
		return nil
	}
	if err := os.MkdirAll(dir+"/sub/deeper", 0o755); err != nil {
		t.Fatal(err)
	}
	await("sub/deeper", filesystem.EventType_EVENT_TYPE_CREATE)
	if err := os.WriteFile(dir+"/sub/deeper/f", []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	if ev := await("sub/deeper/f", filesystem.EventType_EVENT_TYPE_WRITE); ev.GetEntry().GetName() != "f" {
		t.Errorf("got %v", ev)
	}
	_ = os.Chmod(dir+"/sub/deeper/f", 0o600)
	await("sub/deeper/f", filesystem.EventType_EVENT_TYPE_CHMOD)
	_ = os.Rename(dir+"/sub/deeper/f", dir+"/g")
	await("sub/deeper/f", filesystem.EventType_EVENT_TYPE_RENAME)
	_ = os.Remove(dir + "/g")
	if ev := await("g", filesystem.EventType_EVENT_TYPE_REMOVE); ev.Entry != nil {
		t.Errorf("got %v", ev)
	}
}

func TestWatchOfWhatCannotBeWatched(t *testing.T) {
	b := startAgent(t)
	file := t.TempDir() + "/f"
	_ = os.WriteFile(file, nil, 0o644)
	for path, code := range map[string]connect.Code{"/no/such": connect.CodeNotFound, file: connect.CodeInvalidArgument} {
		s, err := b.Filesystem().WatchDir(t.Context(), connect.NewRequest(&filesystem.WatchDirRequest{Path: path}))
		if err != nil {
			t.Fatal(err)
		}
		s.Receive()
		wantCode(t, s.Err(), code)
		_, err = b.Filesystem().CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: path}))
		wantCode(t, err, code)
	}
}

func TestPolledWatcher(t *testing.T) {
	b := startAgent(t)
	dir := t.TempDir()
	fs := b.Filesystem()
	w, err := fs.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: dir}))
	if err != nil {
		t.Fatal(err)
	}
	get := func() ([]*filesystem.FilesystemEvent, error) {
		r, err := fs.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: w.Msg.GetWatcherId()}))
		if err != nil {
			return nil, err
		}
		return r.Msg.GetEvents(), nil
	}
	_ = os.WriteFile(dir+"/new", nil, 0o644)
	deadline := time.Now().Add(20 * time.Second)
	for seen := false; !seen; time.Sleep(5 * time.Millisecond) {
		events, err := get()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("no event: %v", err)
		}
		for _, ev := range events {
			seen = seen || ev.GetName() == "new" && ev.GetType() == filesystem.EventType_EVENT_TYPE_CREATE
		}
	}
	if _, err := fs.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: w.Msg.GetWatcherId()})); err != nil {
		t.Fatal(err)
	}
	_, err = get()
	wantCode(t, err, connect.CodeNotFound)
}
