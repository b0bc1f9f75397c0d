package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// runtime answers agent-sandbox's old runtime API for a sandbox without a server of its own.
type runtime struct {
	forkd *client.Client
	id    string
	found *found
}

// Limits of bodies, in bytes.
const (
	maxCommand = 1 << 20
	maxName    = 4096
)

// call serves one request.
type call func(runtime, http.ResponseWriter, *http.Request) error

// runtimeCall returns the call for a request, or nil.
func runtimeCall(r *http.Request) call {
	first, _, more := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	switch {
	case r.Method == http.MethodPost && first == "execute" && !more:
		return runtime.execute
	case r.Method == http.MethodPost && first == "upload" && !more:
		return runtime.upload
	case r.Method != http.MethodGet:
		return nil
	case first == "" && !more:
		return runtime.health
	case first == "download" && more:
		return runtime.download
	case first == "list" && more:
		return runtime.list
	case first == "exists" && more:
		return runtime.exists
	}
	return nil
}

func (t runtime) health(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "message": "forkd answers for the sandbox"})
	return nil
}

// root is the directory of relative names: /app as in agent-sandbox's image, or /tmp if the user cannot make that.
func (t runtime) root(ctx context.Context) (string, error) {
	t.found.mu.Lock()
	dir, ok := t.found.roots[t.id]
	t.found.mu.Unlock()
	if ok {
		return dir, nil
	}
	dir = "/app"
	if err := t.forkd.MakeDir(ctx, t.id, dir, ""); err != nil {
		switch client.CodeOf(err) {
		case api.CodeInvalid, api.CodeForbidden, api.CodeConflict:
			dir = "/tmp"
		default:
			return "", err
		}
	}
	t.found.mu.Lock()
	defer t.found.mu.Unlock()
	if t.found.roots == nil || len(t.found.roots) >= maxKept {
		t.found.roots = map[string]string{}
	}
	t.found.roots[t.id] = dir
	return dir, nil
}

// under returns the path of a name below the root. Names with .. stay below it.
func (t runtime) under(ctx context.Context, name string) (string, error) {
	if len(name) > maxName || strings.ContainsRune(name, 0) {
		return "", refuse(http.StatusBadRequest, "the path is invalid")
	}
	root, err := t.root(ctx)
	return path.Join(root, path.Clean("/"+name)), err
}

// named returns the path in a URL, below the root.
func (t runtime) named(r *http.Request) (string, error) {
	_, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	name, err := url.PathUnescape(rest)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "the path is invalid")
	}
	return t.under(r.Context(), name)
}

func (t runtime) execute(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Command string   `json:"command"`
		Timeout *float64 `json:"timeout_seconds"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxCommand+1))
	switch {
	case err != nil:
		return refuse(http.StatusBadRequest, "read the body: %v", err)
	case len(body) > maxCommand:
		return refuse(http.StatusRequestEntityTooLarge, "the body is longer than %d bytes", maxCommand)
	}
	if err := json.Unmarshal(body, &req); err != nil || req.Command == "" {
		return refuse(http.StatusUnprocessableEntity, "want a JSON object with a command")
	}
	do := api.ExecRequest{Args: []string{"sh", "-c", req.Command}}
	if req.Timeout != nil {
		if do.TimeoutSecs = *req.Timeout; do.TimeoutSecs <= 0 || do.TimeoutSecs > longest.Seconds() {
			return refuse(http.StatusUnprocessableEntity, "timeout_seconds: want a number above 0")
		}
	}
	if do.Cwd, err = t.root(r.Context()); err != nil {
		return err
	}
	out, err := t.forkd.Exec(r.Context(), t.id, do)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"stdout": out.Stdout, "stderr": out.Stderr, "exit_code": out.ExitCode,
		"timed_out": out.TimedOut})
	return nil
}

func (t runtime) upload(w http.ResponseWriter, r *http.Request) error {
	parts, err := r.MultipartReader()
	if err != nil {
		return refuse(http.StatusUnprocessableEntity, "want multipart/form-data with a file: %v", err)
	}
	for range 16 { // other fields are skipped
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return refuse(http.StatusBadRequest, "read the body: %v", err)
		}
		// Part.FileName has no directories.
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil || params["name"] != "file" || params["filename"] == "" {
			continue
		}
		to, err := t.under(r.Context(), params["filename"])
		if err != nil {
			return err
		}
		if err := t.forkd.Upload(r.Context(), t.id, to, "", part); err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, map[string]string{"message": fmt.Sprintf("File '%s' uploaded successfully.",
			params["filename"])})
		return nil
	}
	return refuse(http.StatusUnprocessableEntity, "the form has no file")
}

func (t runtime) download(w http.ResponseWriter, r *http.Request) error {
	from, err := t.named(r)
	if err != nil {
		return err
	}
	content, err := t.forkd.Download(r.Context(), t.id, from, "")
	if err != nil {
		return err
	}
	defer content.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(w, content); err != nil {
		panic(http.ErrAbortHandler) // the answer must not look complete
	}
	return nil
}

// listed is an entry of a directory.
type listed struct {
	Name    string  `json:"name"`
	Size    int64   `json:"size"`
	Type    string  `json:"type"`
	ModTime float64 `json:"mod_time"`
}

func (t runtime) list(w http.ResponseWriter, r *http.Request) error {
	dir, err := t.named(r)
	if err != nil {
		return err
	}
	entries, err := client.Files{Client: t.forkd}.ListDir(r.Context(), t.id, dir, "")
	if err != nil {
		return err
	}
	out := make([]listed, 0, len(entries))
	for _, e := range entries {
		kind := "file" // clients know no other type
		if e.Type == "directory" {
			kind = e.Type
		}
		out = append(out, listed{e.Name, e.Size, kind, float64(e.ModTime.UnixMicro()) / 1e6})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (t runtime) exists(w http.ResponseWriter, r *http.Request) error {
	name, err := t.named(r)
	if err != nil {
		return err
	}
	files := client.Files{Client: t.forkd}
	_, err = files.DownloadPart(r.Context(), t.id, name, "", 0, 1)
	if err != nil && !client.IsNotFound(err) {
		_, err = files.ListDir(r.Context(), t.id, name, "")
	}
	if err != nil && !client.IsNotFound(err) {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"path": name, "exists": err == nil})
	return nil
}
