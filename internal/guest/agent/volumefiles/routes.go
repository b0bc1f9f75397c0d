//go:build linux

package volumefiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto/volumewire"
)

// AddRoutes adds the routes about files of volumes.
func AddRoutes(mux *http.ServeMux) {
	handle := func(pattern string, f func(http.ResponseWriter, *http.Request, place) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(volumewire.Header, "1")
			p, err := placeOf(r)
			if err == nil {
				err = f(w, r, p)
				p.root.Close()
			}
			if err != nil {
				refuse(w, r, err)
			}
		})
	}
	handle("GET "+volumewire.StatPath, stat)
	handle("PATCH "+volumewire.StatPath, change)
	handle("GET "+volumewire.ListPath, list)
	handle("POST "+volumewire.DirPath, makeDir)
	handle("GET "+volumewire.ContentPath, read)
	handle("PUT "+volumewire.ContentPath, write)
	handle("DELETE "+volumewire.Path, remove)
}

// place is the target of a request.
type place struct {
	root *os.Root
	name string // path below the root; "." is the root
}

// path returns the place as an absolute path of the volume.
func (p place) path() string { return filepath.Join("/", p.name) }

func placeOf(r *http.Request) (place, error) {
	q := r.URL.Query()
	root, path := q.Get(volumewire.QueryRoot), q.Get(volumewire.QueryPath)
	switch {
	case !filepath.IsAbs(root) || filepath.Clean(root) != root || root == "/":
		return place{}, invalid(errors.New("the mount point is not absolute and clean"))
	case len(path) > volumewire.MaxPath || strings.ContainsRune(path, 0):
		return place{}, invalid(errors.New("the path is too long or has a zero byte"))
	}
	opened, err := os.OpenRoot(root)
	if err != nil {
		return place{}, err
	}
	return place{opened, below(path)}, nil
}

// below returns a volume's path relative to its root.
func below(path string) string {
	if s := filepath.Join("/", path)[1:]; s != "" {
		return s
	}
	return "."
}

// statusError is an error with an HTTP status.
type statusError struct {
	code int
	err  error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func invalid(err error) error { return &statusError{http.StatusBadRequest, err} }

// refusedBytes limits the bytes read from a refused upload. A client that is still sending sees the refusal only
// if the connection stays open until all is sent.
const refusedBytes = 64 << 20

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	_, _ = io.CopyN(io.Discard, r.Body, refusedBytes)
	code := status(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "message": words(err)})
}

// words returns the text of an error for the client. Errors of files repeat the path, which the host adds.
func words(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return err.Error()
}

func status(err error) int {
	var known *statusError
	switch {
	case errors.As(err, &known):
		return known.code
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return http.StatusNotFound
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EBUSY):
		return http.StatusConflict
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return http.StatusInsufficientStorage
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return http.StatusForbidden
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG), leaves(err):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// leaves reports whether a path leads out of the volume. Package os has no variable for this error.
func leaves(err error) bool { return strings.HasSuffix(err.Error(), "path escapes from parent") }

func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

// attrsOf reads the owner and the mode of a request.
func attrsOf(r *http.Request) (a volumewire.Attrs, err error) {
	for _, f := range []struct {
		name string
		base int
		most uint64
		to   **uint32
	}{
		{volumewire.QueryUID, 10, 1<<32 - 2, &a.UID}, {volumewire.QueryGID, 10, 1<<32 - 2, &a.GID},
		{volumewire.QueryMode, 8, volumewire.MaxMode, &a.Mode},
	} {
		text := r.URL.Query().Get(f.name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, f.base, 32)
		if err != nil || n > f.most {
			return a, invalid(fmt.Errorf("%s is not a number from 0 to %d", f.name, f.most))
		}
		v := uint32(n)
		*f.to = &v
	}
	return a, nil
}

func forced(r *http.Request) bool { return r.URL.Query().Get(volumewire.QueryForce) == "true" }
