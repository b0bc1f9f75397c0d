package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/forkd/forkd/api"
)

// Part is a part of a file in a sandbox.
type Part struct {
	Data []byte
	// Size is the size of the whole file, in bytes. It is -1 if the guest does not report it, as
	// for files of /proc.
	Size int64
}

// DownloadPart reads at most limit bytes of a file in a sandbox, from the offset on. A negative
// offset counts from the end of the file. Data is empty if the offset is beyond the end.
func (f Files) DownloadPart(ctx context.Context, id, path, user string, offset, limit int64) (Part, error) {
	if limit < 1 {
		return Part{}, &Error{Code: api.CodeInvalid, Message: fmt.Sprintf("limit is %d, want 1 or more", limit)}
	}
	c := f.Client
	t := c.tree(id, user)
	resp, err := c.send(ctx, http.MethodGet, t.url(path), nil, http.Header{
		"Accept-Encoding": {"identity"}, "Range": {rangeOf(offset, limit)},
	})
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusRequestedRangeNotSatisfiable {
		return c.beyondEnd(ctx, t, path)
	}
	if err != nil {
		return Part{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusPartialContent {
		data, err := io.ReadAll(io.LimitReader(resp.Body, limit))
		return Part{data, totalOf(resp.Header.Get("Content-Range"))}, err
	}
	return wholeBody(resp, offset, limit)
}

// rangeOf returns the HTTP header for a part.
func rangeOf(offset, limit int64) string {
	if offset < 0 {
		return fmt.Sprintf("bytes=%d", offset)
	}
	return fmt.Sprintf("bytes=%d-%d", offset, offset+limit-1)
}

// totalOf returns the size of the whole file in a Content-Range header, or -1.
func totalOf(header string) int64 {
	_, total, _ := strings.Cut(header, "/")
	n, err := strconv.ParseInt(total, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// beyondEnd returns the empty part of a file with its size.
func (c *connection) beyondEnd(ctx context.Context, t guestTree, path string) (Part, error) {
	resp, err := c.send(ctx, http.MethodGet, t.url(path), nil, http.Header{
		"Accept-Encoding": {"identity"}, "Range": {"bytes=0-0"},
	})
	if err != nil {
		return Part{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusPartialContent {
		return Part{Size: totalOf(resp.Header.Get("Content-Range"))}, nil
	}
	return Part{Size: resp.ContentLength}, nil
}

// wholeBody takes a part out of a whole file. The agent sends files without a size, such as those
// of /proc, whole.
func wholeBody(resp *http.Response, offset, limit int64) (Part, error) {
	if offset < 0 {
		return lastOf(resp, -offset, limit)
	}
	skipped, err := io.CopyN(io.Discard, resp.Body, offset)
	if errors.Is(err, io.EOF) {
		return Part{Size: skipped}, nil
	}
	if err != nil {
		return Part{}, err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	return Part{data, cmp.Or(resp.ContentLength, -1)}, err
}

// maxUnsized limits the bytes read of a file without a size, to find its end.
const maxUnsized = 16 << 20

// lastOf returns the first limit bytes of the last n bytes.
func lastOf(resp *http.Response, n, limit int64) (Part, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxUnsized))
	if err != nil {
		return Part{}, err
	}
	size := int64(len(data))
	data = data[max(0, size-n):]
	return Part{data[:min(int64(len(data)), limit)], size}, nil
}
