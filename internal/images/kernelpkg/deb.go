package kernelpkg

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/forkd/forkd/internal/leaf/ctxio"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// OpenDeb reads a kernel image package file. It stops when the context ends.
func OpenDeb(ctx context.Context, name string) (*Package, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open kernel package: %w", err)
	}
	defer f.Close()
	p, err := readDeb(ctx, bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read kernel package %s: %w", name, err)
	}
	return p, nil
}

// readDeb reads an ar archive with three members: debian-binary, control.tar.*, data.tar.* (deb(5)).
func readDeb(ctx context.Context, r *bufio.Reader) (*Package, error) {
	if magic, err := r.Peek(8); err != nil || string(magic) != "!<arch>\n" {
		return nil, errors.New("it is not a Debian package")
	}
	if _, err := r.Discard(8); err != nil {
		return nil, err
	}
	var control map[string]string
	for {
		name, size, err := nextMember(r)
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it has no data.tar")
		}
		if err != nil {
			return nil, err
		}
		body := io.LimitReader(r, size)
		switch {
		case strings.HasPrefix(name, "control.tar"):
			if control, err = readControl(ctx, name, body); err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
		case strings.HasPrefix(name, "data.tar"):
			p, err := readData(ctx, name, body)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			p.Version = control["Version"]
			return p, nil
		}
		// Members are padded to even offsets.
		if _, err := io.Copy(io.Discard, ctxio.Reader(ctx, body)); err != nil {
			return nil, err
		}
		if size%2 == 1 {
			if _, err := r.Discard(1); err != nil {
				return nil, fmt.Errorf("it is cut short: %w", err)
			}
		}
	}
}

// nextMember reads a member's header: name 16, time 12, owner 6, group 6, mode 8, size 10, end mark 2 bytes.
func nextMember(r io.Reader) (name string, size int64, err error) {
	var h [60]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		if err == io.EOF {
			return "", 0, err
		}
		return "", 0, fmt.Errorf("it is cut short: %w", err)
	}
	size, err = strconv.ParseInt(strings.TrimSpace(string(h[48:58])), 10, 64)
	if err != nil || size < 0 || size > maxPackage || string(h[58:]) != "`\n" {
		return "", 0, errors.New("it has a damaged archive header")
	}
	return strings.TrimSuffix(strings.TrimSpace(string(h[:16])), "/"), size, nil
}

// openMember decompresses a member according to its name.
func openMember(name string, r io.Reader) (io.Reader, func(), error) {
	done := func() {}
	switch ext := path.Ext(name); ext {
	case ".tar":
		return r, done, nil
	case ".xz":
		z, err := xz.NewReader(r)
		return z, done, err
	case ".gz":
		z, err := gzip.NewReader(r)
		return z, done, err
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20),
			zstd.WithDecoderMaxMemory(maxPackage))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	default:
		return nil, nil, fmt.Errorf("unknown compression %q", ext)
	}
}

func readControl(ctx context.Context, name string, body io.Reader) (map[string]string, error) {
	fields := map[string]string{}
	err := eachFile(ctx, name, body, func(file string, r io.Reader) error {
		if file != "control" {
			return nil
		}
		b, err := readAll(r, 1<<20)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") {
				fields[k] = strings.TrimSpace(v)
			}
		}
		return nil
	})
	return fields, err
}

func readData(ctx context.Context, name string, body io.Reader) (*Package, error) {
	var files []file
	err := eachFile(ctx, name, body, func(file_ string, r io.Reader) error {
		if !wants(file_) {
			return nil
		}
		b, err := readAll(r, maxFile)
		if err != nil {
			return fmt.Errorf("read %s: %w", file_, err)
		}
		files = append(files, file{file_, func() ([]byte, error) { return b, nil }})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return assemble(files)
}

// eachFile calls fn for each regular file of a compressed tar, with its cleaned relative path. It does not follow
// links and writes no files. A sparse file is an error, because its holes would not count as unpacked bytes.
func eachFile(ctx context.Context, name string, body io.Reader, fn func(name string, r io.Reader) error) error {
	plain, done, err := openMember(name, body)
	if err != nil {
		return err
	}
	defer done()
	tr := tar.NewReader(&cappedReader{r: ctxio.Reader(ctx, plain), left: maxPackage})
	for n := 0; ; n++ {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if n > maxEntries {
			return fmt.Errorf("more than %d files", maxEntries)
		}
		if sparse(h) {
			return fmt.Errorf("%q is a sparse file", ellipsis.Clip(h.Name, 100))
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := fn(strings.TrimPrefix(path.Clean("/"+h.Name), "/"), tr); err != nil {
			return err
		}
	}
}

func sparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// cappedReader returns an error, not EOF, after left bytes.
type cappedReader struct {
	r    io.Reader
	left int64
}

func (c *cappedReader) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("more than %d MiB unpacked", maxPackage>>20)
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// unpackModule decompresses a module.
func unpackModule(name string, b []byte) ([]byte, error) {
	if path.Ext(name) == ".ko" {
		return b, nil
	}
	r, done, err := openMember(name, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer done()
	return readAll(r, maxModule)
}

// readAll reads to the end. More than limit bytes are an error.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("larger than %d MiB", limit>>20)
	}
	return b, nil
}
