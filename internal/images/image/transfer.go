package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/leaf/ctxio"
)

// Export writes an image as a tar stream for Import. image.json comes first, to tell the reader which files
// follow.
func (i Image) Export(ctx context.Context, w io.Writer, progress func(Progress)) error {
	meta, err := i.encode()
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	header := func(name string, size int64) error {
		return t.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size, Format: tar.FormatPAX})
	}
	if err := header(MetadataFile, int64(len(meta))); err != nil {
		return fmt.Errorf("export image %s: %w", i.Name, err)
	}
	if _, err := t.Write(meta); err != nil {
		return fmt.Errorf("export image %s: %w", i.Name, err)
	}
	count := &counter{report: progress, total: i.Size()}
	for _, name := range i.dataFiles() {
		if err := header(name, i.Files[name].Size); err != nil {
			return fmt.Errorf("export image %s: %w", i.Name, err)
		}
		if err := copyFile(ctx, io.MultiWriter(t, count), i.Path(name)); err != nil {
			return fmt.Errorf("export image %s: %w", i.Name, err)
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("export image %s: %w", i.Name, err)
	}
	reporter(progress).done(StepSend, false, "")
	return nil
}

func copyFile(ctx context.Context, w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(w, ctxio.Reader(ctx, f)); err != nil {
		return fmt.Errorf("copy %s: %w", path, err)
	}
	return nil
}

// counter reports the fraction of bytes written through it.
type counter struct {
	report      reporter
	done, total int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.done += int64(len(p))
	c.report.at(StepSend, float64(c.done)/float64(c.total), "")
	return len(p), nil
}

// Import reads a stream of Export into the store, replacing an image with the same name. The image appears once
// it is complete and all digests match. On an error the store is unchanged. The stream is untrusted: only the
// files of an image are accepted, by their fixed names, with the sizes in the metadata.
func (s *Store) Import(ctx context.Context, r io.Reader) (Image, error) {
	tmp, err := makeTemp(s.dir)
	if err != nil {
		return Image{}, fmt.Errorf("import image: %w", err)
	}
	defer tmp.Remove()
	meta, err := receive(ctx, tmp.Path, tar.NewReader(ctxio.Reader(ctx, r)))
	if err != nil {
		what := "import image"
		if meta.Name != "" {
			what += " " + meta.Name
		}
		return Image{}, fmt.Errorf("%s: %w", what, err)
	}
	if err := publish(tmp, s.dir, meta.Name); err != nil {
		return Image{}, fmt.Errorf("import image %s: %w", meta.Name, err)
	}
	return s.Get(meta.Name)
}

// receive unpacks a stream. After an error it returns the metadata if it was read.
func receive(ctx context.Context, dir string, t *tar.Reader) (Metadata, error) {
	h, err := t.Next()
	if err != nil {
		return Metadata{}, fmt.Errorf("read stream: %w", err)
	}
	if h.Name != MetadataFile || !plain(h) {
		return Metadata{}, fmt.Errorf("%w: the stream begins with %q, not with %s", ErrDamaged, h.Name, MetadataFile)
	}
	b, err := readCapped(t, maxMetadata)
	if err != nil {
		return Metadata{}, fmt.Errorf("read %s: %w", MetadataFile, err)
	}
	meta, err := parseMetadata(b)
	if err != nil {
		return Metadata{}, err
	}
	if err := receiveFiles(ctx, dir, t, meta); err != nil {
		return meta, err
	}
	// Encode it again, so that the stored metadata matches its ID.
	if b, err = meta.encode(); err != nil {
		return Metadata{}, err
	}
	return meta, os.WriteFile(filepath.Join(dir, MetadataFile), b, 0o644)
}

// plain reports whether an entry is a file with all its bytes in the stream. A sparse file is not: a few bytes of
// it can expand to any size in its header.
func plain(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return false
		}
	}
	return h.Typeflag == tar.TypeReg
}

func receiveFiles(ctx context.Context, dir string, t *tar.Reader, meta Metadata) error {
	missing := meta.dataFiles()
	for {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read stream: %w", err)
		}
		i := slices.Index(missing, h.Name)
		if i < 0 || !plain(h) {
			return fmt.Errorf("%w: the stream has %q, which does not belong there", ErrDamaged, h.Name)
		}
		want := meta.Files[h.Name]
		if h.Size != want.Size {
			return fmt.Errorf("%w: %s has %d bytes, not %d", ErrDamaged, h.Name, h.Size, want.Size)
		}
		if err := receiveFile(ctx, filepath.Join(dir, missing[i]), t, want); err != nil {
			return err
		}
		missing = slices.Delete(missing, i, i+1)
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: the stream ends without %s", ErrDamaged, missing[0])
	}
	return nil
}

func receiveFile(ctx context.Context, path string, r io.Reader, want FileSum) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(ctxio.Reader(ctx, r), want.Size))
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	if n != want.Size || hex.EncodeToString(h.Sum(nil)) != want.SHA256 {
		return fmt.Errorf("%w: %s came with another content than its digest says", ErrDamaged, filepath.Base(path))
	}
	return nil
}
