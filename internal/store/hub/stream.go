package hub

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/forkd/forkd/internal/store/signature"
)

// maxEntries limits the files of a layout.
const maxEntries = 2*maxParts + 16

// ReadExport reads a stream of Export.Write. It calls blob for each blob except the manifest, which it returns. blob
// reads the whole reader, and verifies the digest.
func ReadExport(r io.Reader, blob func(d Descriptor, r io.Reader) error) (raw []byte, a *Artifact, err error) {
	t := tar.NewReader(r)
	last := false // the manifest is next
	for range maxEntries {
		h, err := t.Next()
		if err != nil {
			return nil, nil, cut(err)
		}
		switch hex, is := strings.CutPrefix(h.Name, blobPrefix); {
		case h.Name == FailureFile:
			b, _ := io.ReadAll(io.LimitReader(t, 4096))
			return nil, nil, &Failure{string(b)}
		case h.Name == layoutFile:
			last = true
		case h.Name == indexFile && a != nil:
			return raw, a, nil
		case is && last && a == nil:
			d := Descriptor{Digest: "sha256:" + hex, Size: h.Size}
			if h.Size > MaxManifest {
				return nil, nil, invalid("the manifest has more than %d bytes", MaxManifest)
			}
			if raw, err = readBlob(t, d); err != nil {
				return nil, nil, err
			}
			if a, err = ParseArtifact(raw); err != nil {
				return nil, nil, err
			}
		case is && digestPattern.MatchString("sha256:"+hex):
			if err := blob(Descriptor{Digest: "sha256:" + hex, Size: h.Size}, t); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, invalid("the stream has the file %.100q", h.Name)
		}
	}
	return nil, nil, invalid("more than %d files", maxEntries)
}

// Failure is the reason why a sender could not complete a stream.
type Failure struct{ Reason string }

func (f *Failure) Error() string { return f.Reason }

// Layout is an OCI layout in a tar.
type Layout struct {
	Raw      []byte // the manifest
	Artifact *Artifact
	file     io.ReaderAt
	at       map[string]span // by name
}

type span struct{ offset, size int64 }

// OpenLayout reads the directory of a tar, and its manifest.
func OpenLayout(f interface {
	io.ReadSeeker
	io.ReaderAt
}) (*Layout, error) {
	l := &Layout{file: f, at: map[string]span{}}
	t := tar.NewReader(f)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, invalid("read the tar: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		if len(l.at) == maxEntries {
			return nil, invalid("more than %d files", maxEntries)
		}
		l.at[strings.TrimPrefix(h.Name, "./")] = span{at, h.Size}
	}
	return l, l.manifest()
}

func (l *Layout) manifest() error {
	if s, failed := l.at[FailureFile]; failed {
		b, _ := io.ReadAll(io.NewSectionReader(l.file, s.offset, min(s.size, 4096)))
		return fmt.Errorf("the export of this file failed: %w", &Failure{string(b)})
	}
	s, there := l.at[indexFile]
	if !there || s.size > MaxManifest {
		return invalid("the file has no %s: it is not an OCI layout, or it was cut short", indexFile)
	}
	b, err := io.ReadAll(io.NewSectionReader(l.file, s.offset, s.size))
	if err != nil {
		return err
	}
	var index layoutIndex
	if err := json.Unmarshal(b, &index); err != nil {
		return invalid("decode %s: %w", indexFile, err)
	}
	if len(index.Manifests) != 1 {
		return invalid("the file has %d manifests, want 1", len(index.Manifests))
	}
	d := index.Manifests[0].Descriptor
	if !digestPattern.MatchString(d.Digest) || d.Size < 0 || d.Size > MaxManifest {
		return invalid("the manifest has %d bytes and the digest %.100q", d.Size, d.Digest)
	}
	r, err := l.Blob(d)
	if err != nil {
		return err
	}
	if l.Raw, err = readBlob(r, d); err != nil {
		return err
	}
	l.Artifact, err = ParseArtifact(l.Raw)
	return err
}

// Blob opens a blob.
func (l *Layout) Blob(d Descriptor) (io.ReadCloser, error) {
	s, there := l.at[blobName(d)]
	if !there || s.size != d.Size {
		return nil, invalid("the file has no blob %s of %d bytes", d.Digest, d.Size)
	}
	return io.NopCloser(io.NewSectionReader(l.file, s.offset, s.size)), nil
}

// Outgoing is a snapshot for a daemon.
type Outgoing struct {
	Raw        []byte // the manifest
	Artifact   *Artifact
	Signatures []signature.Signature // of the manifest; may be empty
	// Open opens a blob.
	Open func(Descriptor) (io.ReadCloser, error)
	// Source, if not nil, makes a lazy stream: the daemon fetches the frames of late parts from there.
	Source *Source
}

// Write writes the stream for a daemon. With probe it ends after the state.
func (o *Outgoing) Write(w io.Writer, probe bool) error {
	t := tar.NewWriter(w)
	if err := writeEntry(t, manifestEntry, o.Raw); err != nil {
		return err
	}
	if len(o.Signatures) > 0 {
		b, err := json.Marshal(o.Signatures[:min(len(o.Signatures), signature.MaxSignatures)])
		if err != nil {
			return err
		}
		if err := writeEntry(t, signaturesEntry, b); err != nil {
			return err
		}
	}
	a, open := o.Artifact, o.Open
	if err := copyEntry(t, configEntry, a.Config, open); err != nil {
		return err
	}
	layers := a.Layers
	switch {
	case probe:
		layers = layers[:min(2, len(layers))]
	case o.Source != nil:
		b, err := json.Marshal(o.Source)
		if err == nil {
			err = writeEntry(t, sourceEntry, b)
		}
		if err != nil {
			return err
		}
		early, err := a.Early()
		if err != nil {
			return err
		}
		layers = early[1:]
	}
	for _, d := range layers {
		if err := copyEntry(t, blobName(d), d, open); err != nil {
			return err
		}
	}
	return t.Close()
}

func copyEntry(t *tar.Writer, name string, d Descriptor, open func(Descriptor) (io.ReadCloser, error)) error {
	r, err := open(d)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := t.WriteHeader(header(name, d.Size)); err != nil {
		return err
	}
	if n, err := io.Copy(t, r); err != nil {
		return err
	} else if n != d.Size {
		return invalid("the blob %s has %d bytes, want %d", d.Digest, n, d.Size)
	}
	return nil
}
