package client_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem/filesystemconnect"
)

// wideGuest has in each directory one directory, and as many files as fit in one answer.
type wideGuest struct {
	filesystemconnect.UnimplementedFilesystemHandler
	answer *filesystem.ListDirResponse
}

func newWideGuest() *wideGuest {
	const files = 150_000
	all := []*filesystem.EntryInfo{{Path: "d", Type: filesystem.FileType_FILE_TYPE_DIRECTORY}}
	for i := range files {
		all = append(all, &filesystem.EntryInfo{Path: fmt.Sprint(i), Type: filesystem.FileType_FILE_TYPE_FILE})
	}
	return &wideGuest{answer: &filesystem.ListDirResponse{Entries: all}}
}

func (g *wideGuest) Stat(context.Context, *connect.Request[filesystem.StatRequest]) (
	*connect.Response[filesystem.StatResponse], error) {
	e := &filesystem.EntryInfo{Path: "/t", Type: filesystem.FileType_FILE_TYPE_DIRECTORY}
	return connect.NewResponse(&filesystem.StatResponse{Entry: e}), nil
}

func (g *wideGuest) ListDir(context.Context, *connect.Request[filesystem.ListDirRequest]) (
	*connect.Response[filesystem.ListDirResponse], error) {
	return connect.NewResponse(g.answer), nil
}

// TestAnEndlesslyWideTreeEndsTheCopy checks the limit of listed entries, before files are created.
func TestAnEndlesslyWideTreeEndsTheCopy(t *testing.T) {
	mux := http.NewServeMux()
	inner := http.NewServeMux()
	inner.Handle(filesystemconnect.NewFilesystemHandler(newWideGuest()))
	inner.HandleFunc("GET /files", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/v1/sandboxes/sb/agent/", http.StripPrefix("/v1/sandboxes/sb/agent", inner))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	c, err := client.New(client.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	to := t.TempDir()
	err = c.CopyFrom(t.Context(), "sb", "/t", filepath.Join(to, "x"), client.CopyOptions{})
	if err == nil || !strings.Contains(err.Error(), "more than 1000000 files") {
		t.Errorf("got %v", err)
	}
	made := 0
	_ = filepath.WalkDir(to, func(string, fs.DirEntry, error) error { made++; return nil })
	if made > 20 {
		t.Errorf("%d files and directories were made", made)
	}
}
