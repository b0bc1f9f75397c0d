package ociimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// maxAnswer limits the body of an answer to a library that would read all of it.
const maxAnswer = maxManifest

var errAnswer = errors.New("endless answer")

// polite is the transport of uploads and lists. It waits as long as a busy registry asks for, ends requests without
// progress, limits answers, and keeps a snapshot's bytes on encrypted connections. The library's question whether a
// blob exists is not sent: Push has asked already, in a better way.
type polite struct {
	base   http.RoundTripper
	scheme string // of the registry
}

// RoundTrip implements http.RoundTripper.
func (p polite) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.scheme == "https" && req.URL.Scheme != "https" {
		closeBody(req)
		return nil, fmt.Errorf("%w: from https to %s://%s", errRedirect, req.URL.Scheme, req.URL.Host)
	}
	if req.Method == http.MethodHead && strings.Contains(req.URL.Path, "/blobs/") {
		return absent(req), nil
	}
	outer := req.Context()
	ctx, stalled := withStall(outer)
	req = req.Clone(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = both{stalled.reader(req.Body), req.Body}
	}
	res, err := p.base.RoundTrip(req)
	if err != nil {
		stalled.stop()
		if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
			err = cause
		}
		return nil, err
	}
	res.Body = &answer{Reader: stalled.reader(res.Body), Closer: res.Body, left: maxAnswer, stop: stalled.stop}
	return res, p.wait(outer, res)
}

func absent(req *http.Request) *http.Response {
	return &http.Response{Status: "404 Not Found", StatusCode: http.StatusNotFound, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: req}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

type both struct {
	io.Reader
	io.Closer
}

// wait sleeps as long as a busy registry asks for, at most a minute. The caller then repeats the request.
func (p polite) wait(ctx context.Context, res *http.Response) error {
	if res.StatusCode != http.StatusTooManyRequests && res.StatusCode != http.StatusServiceUnavailable {
		return nil
	}
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	if seconds <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), res.Body.Close())
	case <-time.After(min(time.Duration(seconds)*time.Second, maxRetryAfter)):
		return nil
	}
}

// answer is a body with a limit.
type answer struct {
	io.Reader
	io.Closer
	left int64
	stop func()
}

// Read implements io.Reader.
func (a *answer) Read(b []byte) (int, error) {
	if a.left <= 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errAnswer, maxAnswer)
	}
	n, err := a.Reader.Read(b[:min(int64(len(b)), a.left)])
	a.left -= int64(n)
	return n, err
}

// Close implements io.Closer.
func (a *answer) Close() error {
	a.stop()
	return a.Closer.Close()
}

// has reports whether the registry itself can send a blob. A positive answer to a HEAD request is not enough: registries
// keep it in caches that outlive the blob.
func (r *registry) has(ctx context.Context, d v1.Descriptor) (bool, error) {
	if d.Size == 0 {
		return false, nil
	}
	there := false
	err := r.retry(ctx, func() (bool, error) {
		ctx, stalled := withStall(ctx)
		defer stalled.stop()
		res, err := r.origin().do(ctx, "blobs", d.Digest.String(), "0-0")
		if errors.Is(err, ErrNotFound) || errors.Is(err, errAccess) { // a new repository cannot be read yet
			return false, nil
		}
		if err != nil {
			return false, err
		}
		defer res.Body.Close()
		n, err := io.ReadFull(stalled.reader(res.Body), make([]byte, 1))
		there = n == 1
		if err != nil {
			return false, failure(err)
		}
		return false, nil
	})
	return there, err
}
