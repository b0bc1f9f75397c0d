package ociimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
)

const parallel = 4 // downloads

// fetchAll downloads the layers that the cache does not have.
func (r *registry) fetchAll(ctx context.Context, layers []layer, report func(done, total int64)) error {
	var missing []v1.Descriptor
	p := &progress{report: report}
	seen := map[v1.Hash]bool{}
	for _, l := range layers {
		d := v1.Descriptor{Digest: l.digest, Size: l.size}
		if seen[l.digest] {
			continue
		}
		seen[l.digest] = true
		p.total += l.size
		if r.cache.has(d) {
			p.done += l.size
			continue
		}
		missing = append(missing, d)
	}
	if err := checkSpace(r.cache.dir, p.total-p.done); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, d := range missing {
		g.Go(func() error {
			if err := r.fetch(ctx, d, p); err != nil {
				return fmt.Errorf("download layer %s: %w", d.Digest, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// progress sums the downloads.
type progress struct {
	mu          sync.Mutex
	done, total int64
	report      func(done, total int64)
}

func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	p.report(max(0, min(p.done, p.total)), p.total)
}

// fetch downloads one blob. It continues the partial file of an earlier download. If the result is wrong, it starts
// once more from the beginning, at the registry itself.
func (r *registry) fetch(ctx context.Context, d v1.Descriptor, p *progress) error {
	resumed, err := r.fetchOnce(ctx, d, p)
	if errors.Is(err, ErrInvalid) && (r.dropMirrors() || resumed) {
		_, err = r.fetchOnce(ctx, d, p)
	}
	return err
}

func (r *registry) fetchOnce(ctx context.Context, d v1.Descriptor, p *progress) (resumed bool, err error) {
	f, err := r.cache.begin(ctx, d)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if r.cache.has(d) { // another process was faster
		p.add(d.Size)
		return false, nil
	}
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	resumed = at > 0
	p.add(at)
	err = r.retry(ctx, func() (bool, error) {
		before := at
		at, err = r.receive(ctx, d, f, at, p)
		return at > before, err
	})
	if err == nil {
		err = r.cache.commit(ctx, d, f)
	}
	if err != nil {
		p.add(-at)
	}
	return resumed, err
}

// receive reads a blob from an offset to its end, and returns the new offset.
func (r *registry) receive(ctx context.Context, d v1.Descriptor, f *os.File, at int64, p *progress) (int64, error) {
	if at == d.Size {
		return at, nil
	}
	if at > d.Size {
		return 0, r.restart(f, &at, p)
	}
	ctx, stalled := withStall(ctx)
	defer stalled.stop()
	part := ""
	if at > 0 {
		part = fmt.Sprintf("%d-%d", at, d.Size-1) // some registries refuse a range without an end
	}
	res, from, err := r.do(ctx, "blobs", d.Digest.String(), part)
	if err != nil {
		if at > 0 && strings.Contains(err.Error(), "416 ") {
			err = errors.Join(&temporary{err, 0}, r.restart(f, &at, p))
		}
		return at, err
	}
	defer res.Body.Close()
	if at > 0 && !continues(res, at) {
		if err := r.restart(f, &at, p); err != nil {
			return at, err
		}
	}
	at, err = copyBlob(stalled.reader(res.Body), d, f, at, p)
	if errors.Is(err, ErrInvalid) {
		return at, err // the file begins anew
	}
	return at, from.distrust(err)
}

// continues reports whether an answer begins at an offset.
func continues(res *http.Response, at int64) bool {
	return res.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(res.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", at))
}

func (r *registry) restart(f *os.File, at *int64, p *progress) error {
	p.add(-*at)
	*at = 0
	_, err := f.Seek(0, io.SeekStart)
	return errors.Join(f.Truncate(0), err)
}

func copyBlob(body io.Reader, d v1.Descriptor, f *os.File, at int64, p *progress) (int64, error) {
	buf := make([]byte, 256<<10)
	for {
		n, err := body.Read(buf)
		if at+int64(n) > d.Size {
			return at, errors.Join(invalid("the registry sent more than %d bytes for %s", d.Size, d.Digest), os.Remove(f.Name()))
		}
		if n > 0 {
			if _, err := f.WriteAt(buf[:n], at); err != nil {
				return at, err
			}
			at += int64(n)
			p.add(int64(n))
		}
		switch {
		case err == io.EOF && at == d.Size:
			return at, nil
		case err == io.EOF:
			return at, &temporary{fmt.Errorf("%w: the connection ended at byte %d of %d", ErrRegistry, at, d.Size), 0}
		case err != nil:
			return at, failure(err)
		}
	}
}
