package imagebuild

import (
	"archive/tar"
	"bufio"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// maxUnpacked limits the content of an archive that ADD unpacks, in bytes.
const maxUnpacked = 64 << 30

// unpackArchives replaces the archives on the payload's top level by their content, as ADD does.
func (p *payload) unpackArchives() error {
	names, err := p.top()
	if err != nil {
		return err
	}
	for _, name := range names {
		file := filepath.Join(p.dir, name)
		st, err := os.Lstat(file)
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() {
			continue
		}
		done, err := p.unpack(file)
		if err != nil {
			return fmt.Errorf("unpack %s: %w", name, err)
		}
		if done {
			p.single = false
		}
	}
	return nil
}

// unpack unpacks an archive into the payload and removes it. It returns false if the file is none.
func (p *payload) unpack(file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	r, err := decompressed(bufio.NewReader(f))
	if err != nil {
		return false, nil // not compressed by a known format, or damaged: it stays as it is
	}
	t := tar.NewReader(io.LimitReader(r, maxUnpacked))
	first, err := t.Next()
	if err != nil {
		return false, nil
	}
	if err := os.Remove(file); err != nil {
		return false, err
	}
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	for h := first; ; {
		if p.entries++; p.entries > maxEntries {
			return false, fmt.Errorf("more than %d files", maxEntries)
		}
		if err := unpackEntry(root, h, t); err != nil {
			return false, fmt.Errorf("%s: %w", h.Name, err)
		}
		if h, err = t.Next(); errors.Is(err, io.EOF) {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
}

// decompressed returns the content of a stream that may be compressed.
func decompressed(r *bufio.Reader) (io.Reader, error) {
	magic, _ := r.Peek(6)
	switch s := string(magic); {
	case strings.HasPrefix(s, "\x1f\x8b"):
		return gzip.NewReader(r)
	case strings.HasPrefix(s, "BZh"):
		return bzip2.NewReader(r), nil
	case strings.HasPrefix(s, "\xfd7zXZ\x00"):
		return xz.NewReader(r)
	case strings.HasPrefix(s, "\x28\xb5\x2f\xfd"):
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(128<<20))
	}
	return r, nil
}

// unpackEntry writes one entry below root. Links of the archive do not lead out of it.
func unpackEntry(root *os.Root, h *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	if name == "" {
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	st := h.FileInfo()
	switch h.Typeflag {
	case tar.TypeDir:
		return errors.Join(root.MkdirAll(name, 0o755), root.Chmod(name, st.Mode().Perm()|0o700))
	case tar.TypeSymlink:
		_ = root.Remove(name)
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		_ = root.Remove(name)
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name)
	case tar.TypeReg:
		_ = root.Remove(name)
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close(), root.Chmod(name, st.Mode().Perm()), root.Chtimes(name, h.ModTime, h.ModTime))
	}
	return nil // devices and FIFOs
}
