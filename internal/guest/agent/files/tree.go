package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/treetar"
)

const (
	// maxDepth limits the number of directories that are open at a time.
	maxDepth = 512
	// countTime limits the time to count a tree before it is sent.
	countTime = 300 * time.Millisecond
	treeType  = "application/x-tar"
)

// enterTree does the same as enter, for a tree. It never acts as root, because a stream contains no
// owners.
func (s *Server) enterTree(r *http.Request, op string) (Actor, string, error) {
	a, path, err := s.enter(r, op, r.URL.Query().Get("path"))
	a.root = false
	return a, path, err
}

// DownloadTree serves GET /files/tree. It sends the tree at path as a stream of package treetar.
func (s *Server) DownloadTree(w http.ResponseWriter, r *http.Request) {
	a, path, err := s.enterTree(r, "read tree")
	if err == nil {
		err = a.Do(func() error { return sendTree(w, r, path) })
	}
	if err != nil {
		writeError(w, err)
	}
}

// sendTree returns an error only if it has sent no bytes.
func sendTree(w http.ResponseWriter, r *http.Request, path string) error {
	q := r.URL.Query()
	follow := q.Get("follow") != ""
	if q.Get("total") != "" {
		ctx, cancel := context.WithTimeout(r.Context(), countTime)
		defer cancel()
		if n, ok := treetar.Measure(ctx, guestTree{}, path, follow); ok {
			w.Header().Set(agentproto.HeaderTreeBytes, strconv.FormatInt(n, 10))
		}
	}
	w.Header().Set("Content-Type", treeType)
	out := &begun{Writer: w}
	err := treetar.Pack(r.Context(), out, guestTree{}, path, follow, treetar.Tally{})
	switch {
	case err == nil:
		return nil
	case out.any:
		panic(http.ErrAbortHandler) // shows the reader that the stream is incomplete
	}
	w.Header().Del(agentproto.HeaderTreeBytes)
	return pathError(path, err)
}

// begun records whether any bytes were written.
type begun struct {
	io.Writer
	any bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.any = true
	return b.Writer.Write(p)
}

// guestTree reads the guest's files as a source of trees, with the rights of the calling thread.
type guestTree struct{}

var _ treetar.Source = guestTree{}

func (guestTree) Look(path string, follow bool) (fs.FileInfo, error) {
	flags := unix.O_PATH
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	at, err := Open(path, flags)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return at.Stat()
}

func (guestTree) List(path string) ([]string, error) {
	dir, err := Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

func (guestTree) ReadLink(path string) (string, error) {
	at, err := Open(path, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer at.Close()
	text := linkText(at)
	if text == nil {
		return "", errors.New("its text cannot be read")
	}
	return string(text), nil
}

func (guestTree) Open(path string, looked fs.FileInfo) (*os.File, error) {
	f, st, err := openFile(path, unix.O_RDONLY)
	if err == nil && !os.SameFile(st, looked) {
		_ = f.Close()
		err = errors.New("it was replaced during the copy")
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// UploadTree serves POST /files/tree. It creates at path the tree in a stream of package treetar,
// and answers with a treetar.Report. The parent directory must exist.
func (s *Server) UploadTree(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).EnableFullDuplex()
	report, err := s.uploadTree(r)
	if err != nil {
		answerEarly(w, func(w http.ResponseWriter) { writeError(w, err) })
	} else {
		answerEarly(w, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(report)
		})
	}
	if err != nil || report.Stopped != nil { // see Upload; a client with the answer need not send the rest
		_, _ = io.CopyN(io.Discard, r.Body, refusedBytes)
	}
}

// answerEarly sends a complete answer before the handler ends.
func answerEarly(w http.ResponseWriter, write func(http.ResponseWriter)) {
	whole := &answer{header: w.Header(), status: http.StatusOK}
	write(whole)
	w.Header().Set("Content-Length", strconv.Itoa(whole.body.Len()))
	w.WriteHeader(whole.status)
	_, _ = w.Write(whole.body.Bytes())
	_ = http.NewResponseController(w).Flush()
}

// answer holds an answer until its length is known.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

func (s *Server) uploadTree(r *http.Request) (report treetar.Report, err error) {
	a, path, err := s.enterTree(r, "write tree")
	if err != nil {
		return report, err
	}
	err = a.Do(func() error {
		dir, name, err := openParent(path)
		if err != nil {
			return err
		}
		defer dir.Close()
		top := &treeDir{actor: a, dir: dir, path: filepath.Dir(path)}
		bounds := treetar.Bounds{Depth: maxDepth}
		return treetar.Unpack(r.Context(), r.Body, top, name, bounds, treetar.Tally{
			Copied: func() { report.Copied++ },
			Failed: func(name string, err error) error {
				if told := new(treetar.SenderError); errors.As(err, &told) {
					return nil // the sender knows it already
				}
				if err = pathError(filepath.Join(path, name), err); statusOf(err) == http.StatusInsufficientStorage {
					return err
				}
				report.Fail(name, err.Error())
				return nil
			},
		})
	})
	switch {
	case err == nil:
	case report.Copied == 0 && !errors.Is(err, treetar.ErrBroken):
		return report, pathError(path, err)
	case errors.Is(err, treetar.ErrBroken):
		report.Broken = true
	default:
		err = pathError(path, err)
		report.Stopped = &treetar.Stop{Code: statusOf(err), Message: valid(err.Error())}
	}
	return report, nil
}

// statusOf returns the HTTP status for an error.
func statusOf(err error) int {
	var he *httpError
	if errors.As(err, &he) {
		return he.code
	}
	return http.StatusInternalServerError
}

// treeDir is a directory of the guest into which a tree is unpacked.
type treeDir struct {
	actor Actor
	dir   *os.File
	path  string
	top   *treeDir // the tree's own directory; nil above it
	made  bool     // created by this copy, which then sets its mode
}

var _ treetar.Target = (*treeDir)(nil)

// Dir implements treetar.Target. It follows an existing link to a directory, as for paths.
func (d *treeDir) Dir(name string, m treetar.Meta) (treetar.Target, error) {
	sub := &treeDir{actor: d.actor, path: filepath.Join(d.path, name), top: d.top}
	if sub.top == nil {
		sub.top = sub
	}
	flags := unix.O_PATH | unix.O_DIRECTORY
	err := unix.Mkdirat(int(d.dir.Fd()), name, uint32(m.Mode|0o700))
	switch {
	case err == nil:
		sub.made = true
		flags |= unix.O_NOFOLLOW
	case !errors.Is(err, unix.EEXIST):
		return nil, err
	}
	sub.dir, err = openAt(d.dir, name, flags, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENOENT) && !sub.made {
		err = fmt.Errorf("path '%s' already exists and is not a directory", sub.path)
		return nil, badRequest(err)
	}
	if err != nil {
		return nil, err
	}
	return sub, nil
}

// File implements treetar.Target.
func (d *treeDir) File(name string, m treetar.Meta, body *treetar.Content) error {
	c := content{
		fill: func(f *os.File) error { return body.WriteTo(f) },
		mode: m.Mode, setMode: true, modTime: m.ModTime,
	}
	old, err := openOld(d.dir, name, filepath.Join(d.path, name))
	switch {
	case err != nil:
		return err
	case old != nil:
		return d.actor.replaceOld(old, c)
	}
	return d.actor.writePart(d.dir, name, nil, c)
}

// SymLink implements treetar.Target.
func (d *treeDir) SymLink(name, text string, m treetar.Meta) error {
	return d.actor.linkAt(d.dir, name, text, m.ModTime)
}

// HardLink implements treetar.Target.
func (d *treeDir) HardLink(name string, first []string) error {
	at := d.top.dir
	for _, part := range first[:len(first)-1] {
		sub, err := openAt(at, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer sub.Close()
		at = sub
	}
	fd, part := int(d.dir.Fd()), PartPrefix+randomName()
	if err := unix.Linkat(int(at.Fd()), first[len(first)-1], fd, part, 0); err != nil {
		return err
	}
	err := unix.Renameat(fd, part, fd, name)
	_ = unix.Unlinkat(fd, part, 0) // Renameat leaves the old name if both are links to the same file
	return err
}

// Finish implements treetar.Target.
func (d *treeDir) Finish(m treetar.Meta) error {
	defer d.dir.Close()
	if d.made {
		if err := os.Chmod(self(d.dir), m.Mode); err != nil {
			return err
		}
	}
	return setTime(d.dir, m.ModTime)
}
