package files

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/account"
	"github.com/forkd/forkd/internal/guest/agent/guestpath"
	"github.com/forkd/forkd/internal/guest/treetar"
)

// httpError is an error with an HTTP status.
type httpError struct {
	code int
	err  error
}

func (e *httpError) Error() string { return e.err.Error() }

func badRequest(err error) error { return &httpError{http.StatusBadRequest, err} }

// Download serves GET /files.
func (s *Server) Download(w http.ResponseWriter, r *http.Request) {
	if err := s.download(w, r); err != nil {
		writeError(w, err)
	}
}

func (s *Server) download(w http.ResponseWriter, r *http.Request) error {
	a, path, err := s.enter(r, "read", r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	// The whole transfer has the user's rights: some files of /proc check the rights of the reader,
	// not of the opener.
	return a.Do(func() error { return serveFile(w, r, path) })
}

func serveFile(w http.ResponseWriter, r *http.Request, path string) error {
	f, st, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return pathError(path, err)
	}
	defer f.Close()
	name := mime.FormatMediaType("inline", map[string]string{"filename": filepath.Base(path)})
	w.Header().Set("Content-Disposition", name)
	w.Header().Set("Vary", "Accept-Encoding")
	if st.Size() == 0 {
		return copyUnsized(w, f)
	}
	http.ServeContent(w, r, filepath.Base(path), st.ModTime(), f)
	return nil
}

// copyUnsized serves a file of size 0. Files in /proc have that size but often are not empty.
func copyUnsized(w http.ResponseWriter, f *os.File) error {
	buf := make([]byte, 32<<10)
	n, err := f.Read(buf)
	if n == 0 && errors.Is(err, io.EOF) {
		w.Header().Set("Content-Length", "0")
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if n == 0 && err != nil && !errors.Is(err, io.EOF) {
		return pathError(f.Name(), err)
	}
	if _, err := w.Write(buf[:n]); err == nil && n > 0 {
		_, _ = io.CopyBuffer(w, f, buf) // too late for an error status: the connection ends early
	}
	return nil
}

// enter authorizes the request, finds the actor and resolves the path.
func (s *Server) enter(r *http.Request, op, path string) (Actor, string, error) {
	if err := authorize(r, op, s.rec.Token(), time.Now()); err != nil {
		return Actor{}, "", &httpError{http.StatusUnauthorized, err}
	}
	name := r.URL.Query().Get("username")
	if name == "" {
		name = s.rec.User()
	}
	u, err := account.Lookup(name)
	if err != nil {
		return Actor{}, "", &httpError{http.StatusUnauthorized, fmt.Errorf("error looking up user '%s': %w", name, err)}
	}
	abs, err := guestpath.Resolve(path, u.Home, s.rec.Workdir())
	if err != nil {
		return Actor{}, "", badRequest(err)
	}
	return actorFor(r.Header, u), abs, nil
}

// written describes one file in the answer to an upload.
type written struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// refusedBytes limits the bytes read from a refused upload.
const refusedBytes = 64 << 20

// Upload serves POST /files.
func (s *Server) Upload(w http.ResponseWriter, r *http.Request) {
	out, err := s.upload(r)
	if err != nil {
		// A client that is still sending sees the refusal only if the connection stays open until
		// all is sent: proxies give up on a connection that ends during their writes.
		_, _ = io.CopyN(io.Discard, r.Body, refusedBytes)
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

func (s *Server) upload(r *http.Request) ([]written, error) {
	up, err := s.prepare(r)
	if err != nil {
		return nil, err
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && strings.HasPrefix(kind, "multipart/"):
		return up.multipart(r)
	case err == nil && kind == "application/octet-stream":
		if r.URL.Query().Get("path") == "" {
			return nil, badRequest(errors.New("path is required with application/octet-stream"))
		}
		one, err := up.file(r.URL.Query().Get("path"), up.body)
		if err != nil {
			return nil, err
		}
		return []written{one}, nil
	}
	return nil, badRequest(fmt.Errorf("unsupported content type %q", r.Header.Get("Content-Type")))
}

// upload is the state of one request.
type upload struct {
	s        *Server
	actor    Actor
	body     io.Reader
	metadata map[string]string
	mode     fs.FileMode // if 0, the default
	seen     map[string]bool
}

func (s *Server) prepare(r *http.Request) (*upload, error) {
	a, _, err := s.enter(r, "write", r.URL.Query().Get("path"))
	if err != nil {
		return nil, err
	}
	up := &upload{s: s, actor: a, body: r.Body, seen: map[string]bool{}}
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
	case "gzip":
		if up.body, err = gzip.NewReader(r.Body); err != nil {
			return nil, badRequest(fmt.Errorf("read gzip: %w", err))
		}
	default:
		return nil, badRequest(fmt.Errorf("unsupported content encoding %q", enc))
	}
	if up.metadata, err = metadataOf(r.Header); err != nil {
		return nil, badRequest(err)
	}
	if m := r.URL.Query().Get("mode"); m != "" { // not in E2B's API: cp keeps the mode
		v, err := strconv.ParseUint(m, 8, 32)
		if err != nil || v > 0o777 {
			return nil, badRequest(fmt.Errorf("mode %q is not an octal number up to 777", m))
		}
		up.mode = fs.FileMode(v)
	}
	return up, nil
}

func metadataOf(h http.Header) (map[string]string, error) {
	var out map[string]string
	total := 0
	for name, values := range h {
		key, ok := strings.CutPrefix(strings.ToLower(name), "x-metadata-")
		if !ok || key == "" {
			continue
		}
		v := values[0]
		if total += len(key) + len(v); total > maxMetadata || len(key) > maxMetadataKey {
			return nil, errors.New("metadata is too long")
		}
		for _, r := range v {
			if r < 0x20 || r > 0x7e {
				return nil, fmt.Errorf("metadata %q is not printable ASCII", key)
			}
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = v
	}
	return out, nil
}

// multipart writes each part named file. The part's full filename is its path, unless the query has
// a path.
func (up *upload) multipart(r *http.Request) ([]written, error) {
	r.Body = io.NopCloser(up.body)
	mr, err := r.MultipartReader()
	if err != nil {
		return nil, badRequest(err)
	}
	var out []written
	for {
		part, err := mr.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, badRequest(fmt.Errorf("read parts: %w", err))
		}
		if part.FormName() != "file" {
			continue
		}
		// Part.FileName would drop the directories.
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil {
			return nil, badRequest(err)
		}
		path := r.URL.Query().Get("path")
		if path == "" {
			path = params["filename"]
		}
		one, err := up.file(path, part)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		return nil, badRequest(errors.New("no part named file"))
	}
	return out, nil
}

func (up *upload) file(path string, body io.Reader) (written, error) {
	abs, err := guestpath.Resolve(path, up.actor.user.Home, up.s.rec.Workdir())
	if err != nil {
		return written{}, badRequest(err)
	}
	if up.seen[abs] {
		return written{}, badRequest(fmt.Errorf("path '%s' was given twice", abs))
	}
	up.seen[abs] = true
	if err := up.write(abs, body); err != nil {
		return written{}, pathError(abs, err)
	}
	return written{Path: abs, Name: filepath.Base(abs), Type: "file", Metadata: up.metadata}, nil
}

func (up *upload) write(path string, body io.Reader) error {
	c := content{fill: from(body), mode: up.mode, setMode: up.mode != 0, metadata: up.metadata}
	return up.actor.Do(func() error {
		if up.actor.root {
			return up.actor.rewrite(path, c)
		}
		return up.actor.replace(path, c)
	})
}

// Link serves POST /files/link. It creates a link at path with the text target and replaces an
// existing file or link. E2B's API does not have it; cp uses it.
func (s *Server) Link(w http.ResponseWriter, r *http.Request) {
	if err := s.link(r); err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) link(r *http.Request) error {
	a, path, err := s.enter(r, "write", r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	target := r.URL.Query().Get("target")
	if target == "" || len(target) >= unix.PathMax || strings.IndexByte(target, 0) >= 0 {
		return badRequest(fmt.Errorf("target %.100q is no text for a link", target))
	}
	if err := a.Do(func() error { return a.link(path, target) }); err != nil {
		return pathError(path, err)
	}
	return nil
}

// pathError maps an error of the file system to an HTTP status.
func pathError(path string, err error) error {
	var notRegular *notRegularError
	var dangling *danglingError
	var he *httpError
	switch {
	case errors.As(err, &he):
		return err
	case errors.As(err, &dangling):
		return badRequest(dangling)
	case errors.Is(err, treetar.ErrFormat):
		return badRequest(err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS), errors.Is(err, unix.EBUSY):
		return &httpError{http.StatusForbidden, fmt.Errorf("path '%s': %w", path, bare(err))}
	case errors.Is(err, fs.ErrNotExist):
		return &httpError{http.StatusNotFound, fmt.Errorf("path '%s' does not exist", path)}
	case errors.As(err, &notRegular):
		return badRequest(notRegular)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return &httpError{http.StatusInsufficientStorage, fmt.Errorf("not enough disk space for '%s'", path)}
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.ELOOP), errors.Is(err, unix.ETXTBSY),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return badRequest(fmt.Errorf("path '%s': %w", path, err))
	}
	return &httpError{http.StatusInternalServerError, fmt.Errorf("path '%s': %w", path, bare(err))}
}

// bare returns only the cause, for messages that already contain the path.
func bare(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

func writeError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	var he *httpError
	if errors.As(err, &he) {
		code = he.code
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Disposition")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, valid(err.Error())})
}
