package fakeengine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem/filesystemconnect"
)

// disk is the fake guest's file system: directories, files, and one link.
type disk struct {
	filesystemconnect.UnimplementedFilesystemHandler

	mu    sync.Mutex // guards files
	files map[string]*node
}

type node struct {
	dir  bool
	data []byte
	link string
}

func newDisk() *disk {
	return &disk{files: map[string]*node{"/": {dir: true}, "/etc": {dir: true}, "/tmp": {dir: true}, "/srv": {dir: true},
		"/etc/hostname": {data: []byte("fake\n")}}}
}

// clone returns a disk with the same files.
func (d *disk) clone() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &disk{files: map[string]*node{}}
	for name, n := range d.files {
		same := *n
		same.data = slices.Clone(n.data)
		out.files[name] = &same
	}
	return out
}

func basicAuth(header string) (user, password string, ok bool) {
	return (&http.Request{Header: http.Header{"Authorization": {header}}}).BasicAuth()
}

func (d *disk) download(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("path")
	d.mu.Lock()
	n, ok := d.files[path.Clean(name)]
	d.mu.Unlock()
	switch {
	case !ok:
		agentError(w, http.StatusNotFound, fmt.Sprintf("path '%s' does not exist", name))
	case n.dir:
		agentError(w, http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", name))
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(n.data)) // with ranges, as the agent
	}
}

func agentError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{"code": code, "message": message})
}

func (d *disk) upload(w http.ResponseWriter, r *http.Request) {
	name := path.Clean(r.URL.Query().Get("path"))
	data, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Content-Type") != "application/octet-stream" {
		agentError(w, http.StatusBadRequest, "unsupported content type")
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := d.files[name]; ok && n.dir {
		agentError(w, http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", name))
		return
	}
	d.makeDirsLocked(path.Dir(name))
	d.files[name] = &node{data: data}
	json.NewEncoder(w).Encode([]map[string]string{{"path": name, "name": path.Base(name), "type": "file"}})
}

func (d *disk) makeLink(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[path.Clean(r.URL.Query().Get("path"))] = &node{link: r.URL.Query().Get("target")}
	w.WriteHeader(http.StatusNoContent)
}

func (d *disk) makeDirsLocked(name string) {
	for ; d.files[name] == nil; name = path.Dir(name) {
		d.files[name] = &node{dir: true}
	}
}

func (d *disk) Stat(_ context.Context,
	req *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := path.Clean(req.Msg.GetPath())
	n, ok := d.files[name]
	if !ok {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("%s does not exist", name))
	}
	return connect.NewResponse(&filesystem.StatResponse{Entry: entryOf(name, n)}), nil
}

func (d *disk) MakeDir(_ context.Context,
	req *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := path.Clean(req.Msg.GetPath())
	if _, ok := d.files[name]; ok {
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("%s exists", name))
	}
	d.makeDirsLocked(name)
	return connect.NewResponse(&filesystem.MakeDirResponse{Entry: entryOf(name, d.files[name])}), nil
}

func (d *disk) ListDir(_ context.Context,
	req *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	root := path.Clean(req.Msg.GetPath())
	if n, ok := d.files[root]; !ok || !n.dir {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("%s is no directory", root))
	}
	var names []string
	for name := range d.files {
		rest, below := strings.CutPrefix(name, strings.TrimSuffix(root, "/")+"/")
		if below && rest != "" && strings.Count(rest, "/") < max(1, int(req.Msg.GetDepth())) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	resp := &filesystem.ListDirResponse{}
	for _, name := range names {
		resp.Entries = append(resp.Entries, entryOf(name, d.files[name]))
	}
	return connect.NewResponse(resp), nil
}

func entryOf(name string, n *node) *filesystem.EntryInfo {
	e := &filesystem.EntryInfo{Name: path.Base(name), Path: name, Type: filesystem.FileType_FILE_TYPE_FILE,
		Size: int64(len(n.data)), Mode: 0o644}
	switch {
	case n.dir:
		e.Type, e.Mode = filesystem.FileType_FILE_TYPE_DIRECTORY, 0o755
	case n.link != "":
		e.Type, e.SymlinkTarget = filesystem.FileType_FILE_TYPE_SYMLINK, &n.link
	}
	return e
}
