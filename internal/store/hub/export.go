package hub

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Export configures the sending of a snapshot.
type Export struct {
	Files   *snapshot.Files
	Layers  *store.Store
	Secrets []string // content with one of these is not sent
	// Pause is called between pieces, and may block. It may be nil.
	Pause func(context.Context) error
}

// FailureFile is the name of a stream's last file if the sender could not complete it: a line of text.
const FailureFile = "forkd-failure"

// Write writes an OCI layout as a tar. The manifest comes last, because the digests are known only then. An error
// that occurs after the first byte is the last file of the stream.
func (e *Export) Write(ctx context.Context, w io.Writer) error {
	t := tar.NewWriter(w)
	if err := e.write(ctx, t); err != nil {
		_ = t.Flush() // WriteFailure begins with a whole block
		return err
	}
	return t.Close()
}

// WriteFailure ends a stream that was begun with an error for its reader.
func WriteFailure(w io.Writer, failure error) {
	t := tar.NewWriter(w)
	if writeEntry(t, FailureFile, []byte(failure.Error())) == nil {
		_ = t.Close()
	}
}

func (e *Export) write(ctx context.Context, t *tar.Writer) error {
	m := travelling(e.Files.Manifest)
	config, err := m.Encode()
	if err != nil {
		return err
	}
	p, err := newPacker(e.Secrets)
	if err != nil {
		return err
	}
	defer p.close()
	s := &sender{Export: e, packer: p, tar: t, artifact: newArtifact(config, m), sent: map[string]bool{}}
	for _, f := range stateFirst(m) {
		if err := s.send(ctx, f.Name, e.Files.File(f.Name), Parts{Body: f.Bytes}, nil); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	for _, id := range m.LayerIDs() {
		if err := s.layer(ctx, id); err != nil {
			return fmt.Errorf("layer %s: %w", id, err)
		}
	}
	return s.finish(config)
}

// sender writes the blobs of one snapshot.
type sender struct {
	*Export
	packer   *packer
	tar      *tar.Writer
	artifact *Artifact
	sent     map[string]bool // digests
}

// send packs some content into an unnamed file, and writes its blobs if they are new. wrong, if not nil, compares
// the content with its digests.
func (s *sender) send(ctx context.Context, name string, r io.ReaderAt, of Parts, wrong func(*Table) error) error {
	f, err := s.Layers.Scratch()
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	out := &roomy{w: f, room: s.Layers.Room}
	table, err := s.packer.pack(ctx, r, of, io.MultiWriter(out, h), func(int64) error {
		if s.Pause == nil {
			return nil
		}
		return s.Pause(ctx)
	})
	if err == nil && wrong != nil {
		err = wrong(table)
	}
	if err != nil {
		return err
	}
	t := table.Encode()
	td := describe(TableType, t)
	fd := Descriptor{MediaType: FramesType, Digest: "sha256:" + hex.EncodeToString(h.Sum(nil)), Size: table.BlobBytes()}
	s.artifact.add(name, table.Content(), td, fd)
	if err := s.blob(td, t); err != nil || s.sent[fd.Digest] {
		return err
	}
	s.sent[fd.Digest] = true
	return s.file(fd, f)
}

func (s *sender) blob(d Descriptor, b []byte) error {
	if s.sent[d.Digest] {
		return nil
	}
	s.sent[d.Digest] = true
	return writeEntry(s.tar, blobName(d), b)
}

func (s *sender) file(d Descriptor, f *os.File) error {
	if err := s.tar.WriteHeader(header(blobName(d), d.Size)); err != nil {
		return err
	}
	_, err := io.Copy(s.tar, io.NewSectionReader(f, 0, d.Size))
	return err
}

// finish writes the configuration, the manifest and the index.
func (s *sender) finish(config []byte) error {
	if err := s.blob(s.artifact.Config, config); err != nil {
		return err
	}
	raw, err := s.artifact.encode()
	if err != nil {
		return err
	}
	d := describe(ManifestType, raw)
	if err := writeEntry(s.tar, layoutFile, []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := writeEntry(s.tar, blobName(d), raw); err != nil { // a reader knows it by its place
		return err
	}
	d.Annotations = map[string]string{"org.opencontainers.image.ref.name": s.artifact.Annotations[TitleKey]}
	index, err := json.Marshal(layoutIndex{
		SchemaVersion: 2, MediaType: indexType, Manifests: []indexed{{d, ArtifactType}},
	})
	if err != nil {
		return err
	}
	return writeEntry(s.tar, indexFile, index)
}

const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"
	indexType  = "application/vnd.oci.image.index.v1+json"
	blobPrefix = "blobs/sha256/"
)

// layoutIndex is the index.json of an OCI layout.
type layoutIndex struct {
	SchemaVersion int       `json:"schemaVersion"`
	MediaType     string    `json:"mediaType"`
	Manifests     []indexed `json:"manifests"`
}

type indexed struct {
	Descriptor
	ArtifactType string `json:"artifactType,omitempty"`
}

func blobName(d Descriptor) string { return blobPrefix + d.Hex() }

func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, Format: tar.FormatPAX}
}

func writeEntry(t *tar.Writer, name string, b []byte) error {
	if err := t.WriteHeader(header(name, int64(len(b)))); err != nil {
		return err
	}
	_, err := t.Write(b)
	return err
}
