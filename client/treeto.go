package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/guest/treetar"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// tellTime limits the wait for the agent's report on an interrupted copy.
const tellTime = 5 * time.Second

// maxReport limits the size of the agent's report, in bytes.
const maxReport = 4 << 20

// tree copies a file or a directory into the guest as one stream.
func (u *uploader) tree(ctx context.Context, source, target string) error {
	if u.opt.Total != nil {
		counting, counted := context.WithCancel(ctx)
		done := make(chan struct{})
		defer func() { counted(); <-done }()
		go func() {
			defer close(done)
			if n, ok := treetar.Measure(counting, here{}, source, u.opt.FollowLinks); ok {
				u.opt.Total(n)
			}
		}()
	}
	out, in := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := treetar.Pack(ctx, in, here{}, source, u.opt.FollowLinks, u.sent(source))
		// Close normally even if the stream was cut off. The agent then reports the part it has.
		in.Close()
		packed <- err
	}()
	first := bufio.NewReader(out)
	if _, err := first.Peek(1); err != nil {
		return <-packed // the source itself cannot be read, and nothing was sent
	}
	report, err := u.send(ctx, target, body{first, out})
	out.Close()
	packErr := <-packed
	if errors.Is(packErr, io.ErrClosedPipe) { // the agent answered before the end
		packErr = nil
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return &StoppedError{Unknown: true, Cause: ctx.Err()}
	case err != nil:
		return u.failed(target, err)
	}
	return u.reported(target, report, packErr)
}

// body is a request body, beginning with bytes already read.
type body struct {
	io.Reader
	io.Closer
}

// sent counts parts as they are sent. The agent reports the parts that arrived.
func (u *uploader) sent(source string) treetar.Tally {
	return treetar.Tally{
		Copied:   u.opt.arrived,
		Progress: u.opt.Progress,
		Failed: func(name string, err error) error {
			return u.tally.took(fmt.Errorf("copy %s: %w", filepath.Join(source, name), err))
		},
		Skipped: func(name, why string) { u.opt.skip(filepath.Join(source, name), why) },
	}
}

// send sends a tree. When ctx ends, the stream ends, and the agent has tellTime to answer.
func (u *uploader) send(ctx context.Context, target string, content io.Reader) (treetar.Report, error) {
	request, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	late := time.AfterFunc(time.Hour, func() { end(ctx.Err()) })
	late.Stop()
	defer late.Stop()
	defer context.AfterFunc(ctx, func() { late.Reset(tellTime) })()
	var report treetar.Report
	resp, err := u.to.conn.send(request, http.MethodPost, u.to.treeURL(target, CopyOptions{}), content,
		http.Header{"Content-Type": {"application/x-tar"}})
	if err != nil {
		return report, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReport)).Decode(&report); err != nil {
		if ended := endOf(err); ended != nil {
			return report, ended
		}
		return report, fmt.Errorf("decode the agent's report: %w", err)
	}
	return report, nil
}

// reported returns the result of a copy. sendErr is the reason for an early end of the stream.
func (u *uploader) reported(target string, report treetar.Report, sendErr error) error {
	u.tally.copied = report.Copied
	for _, f := range report.Failed {
		name := guesttext.Of(f.Name).String()
		if err := u.tally.took(u.failed(path.Join(target, name), guesttext.New(f.Message))); err != nil {
			return err
		}
	}
	u.tally.more += max(0, report.More)
	switch {
	case report.Stopped != nil:
		code := report.Stopped.Code
		sendErr = u.failed(target, &Error{
			Code: api.CodeOf(code), Status: code, Message: guesttext.Lines(report.Stopped.Message).String(),
		})
	case sendErr == nil && report.Broken:
		sendErr = u.failed(target, treetar.ErrBroken)
	}
	return u.tally.end(sendErr)
}

func (o CopyOptions) arrived() {
	if o.Arrived != nil {
		o.Arrived()
	}
}

// here is this host's file system as a source of trees.
type here struct{}

var _ treetar.Source = here{}

func (here) Look(path string, follow bool) (fs.FileInfo, error) {
	if follow {
		return os.Stat(path)
	}
	return os.Lstat(path)
}

func (here) List(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

func (here) ReadLink(path string) (string, error) { return os.Readlink(path) }

var errReplaced = errors.New("it was replaced during the copy")

func (here) Open(path string, looked fs.FileInfo) (*os.File, error) {
	flags := os.O_RDONLY
	if looked.Mode().IsRegular() {
		flags |= syscall.O_NONBLOCK // it may have become a FIFO
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || looked.Mode().IsRegular() && !os.SameFile(looked, now) {
		_ = f.Close()
		return nil, &fs.PathError{Op: "open", Path: path, Err: cmp.Or(err, errReplaced)}
	}
	return f, nil
}
