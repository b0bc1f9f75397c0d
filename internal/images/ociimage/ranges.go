package ociimage

import (
	"context"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ErrNoRanges is returned by Range if the registry sends whole blobs only.
var ErrNoRanges = errors.New("the registry does not send parts of a blob")

// Range reads n bytes of a blob from an offset. It sends one request and does not repeat it. The content is not
// verified. It needs no cache.
func (r *Repository) Range(ctx context.Context, d v1.Descriptor, at, n int64) (io.ReadCloser, error) {
	ctx, stalled := withStall(ctx)
	res, from, err := r.r.do(ctx, "blobs", d.Digest.String(), fmt.Sprintf("%d-%d", at, at+n-1))
	if err != nil {
		stalled.stop()
		return nil, err
	}
	if !continues(res, at) {
		res.Body.Close()
		stalled.stop()
		return nil, from.distrust(fmt.Errorf("%w: %w: it answered %s", ErrRegistry, ErrNoRanges, res.Status))
	}
	return &part{Reader: io.LimitReader(stalled.reader(res.Body), n), close: func() error {
		defer stalled.stop()
		return res.Body.Close()
	}}, nil
}

// part is the body of an answer.
type part struct {
	io.Reader
	close func() error
}

// Close ends the request.
func (p *part) Close() error { return p.close() }

// DropMirrors stops the use of mirrors, because one of them sent wrong bytes.
func (r *Repository) DropMirrors() { r.r.dropMirrors() }
