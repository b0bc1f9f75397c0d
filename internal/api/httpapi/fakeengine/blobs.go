package fakeengine

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/hub"
)

// BlobBytes is the size of the frames of a fake snapshot.
const BlobBytes = 3 << 20

// blobs are those of a fake snapshot. The content depends on its tag only.
type blobs struct {
	manifest []byte
	by       map[string][]byte
}

// OpenBlobs offers made-up content.
func (t travels) OpenBlobs(_ context.Context, req sandbox.ExportRequest) (sandbox.Blobs, error) {
	e := t.e
	e.mu.Lock()
	info, err := e.snapshotLocked(req.Tag)
	e.mu.Unlock()
	if err == nil {
		err = sandbox.RefuseTainted(e.Secrets, req.Tag, secretsOf(info))
	}
	if err != nil {
		return nil, err
	}
	return newBlobs(req.Tag), nil
}

func newBlobs(tag string) *blobs {
	b := &blobs{by: map[string][]byte{}}
	a := hub.Artifact{SchemaVersion: 2, MediaType: hub.ManifestType, ArtifactType: hub.ArtifactType,
		Annotations: map[string]string{"vnd.forkd.architecture": "amd64", hub.TitleKey: tag}}
	frames := bytes.Repeat([]byte(tag+"\n"), BlobBytes/len(tag))[:BlobBytes]
	a.Config = b.add(hub.ConfigType, []byte(`{"fake":true}`))
	table := (&hub.Table{}).Encode()
	name := map[string]string{"vnd.forkd.name": "vmstate"}
	of := b.add(hub.TableType, table)
	of.Annotations = name
	data := b.add(hub.FramesType, frames)
	data.Annotations = map[string]string{"vnd.forkd.name": "vmstate", "vnd.forkd.bytes": strconv.Itoa(BlobBytes)}
	a.Layers = []hub.Descriptor{of, data}
	b.manifest, _ = json.Marshal(a)
	return b
}

func (b *blobs) add(mediaType string, content []byte) hub.Descriptor {
	sum := sha256.Sum256(content)
	d := hub.Descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(content))}
	b.by[d.Digest] = content
	return d
}

// Manifest returns the manifest.
func (b *blobs) Manifest() []byte { return b.manifest }

// Blob returns a blob.
func (b *blobs) Blob(digest string) io.ReadSeekCloser {
	if content, there := b.by[digest]; there {
		return blob{bytes.NewReader(content)}
	}
	return nil
}

// Close does nothing.
func (*blobs) Close() {}

type blob struct{ *bytes.Reader }

func (blob) Close() error { return nil }

// importBlobs makes a snapshot of a stream of OpenBlobs, whose digests it compares.
func importBlobs(e *Engine, req sandbox.ImportRequest, r io.Reader) (sandbox.SnapshotInfo, error) {
	wrong := func(err error) (sandbox.SnapshotInfo, error) {
		return sandbox.SnapshotInfo{}, sandbox.Errorf(sandbox.ErrInvalid, "", "the stream is no snapshot: %w", err)
	}
	t := tar.NewReader(r)
	if _, err := t.Next(); err != nil {
		return wrong(err)
	}
	raw, err := io.ReadAll(t)
	if err != nil {
		return wrong(err)
	}
	a, err := hub.ParseArtifact(raw)
	if err != nil {
		return wrong(err)
	}
	for _, d := range a.Blobs() {
		if _, err := t.Next(); err != nil {
			return wrong(err)
		}
		h := sha256.New()
		if _, err := io.Copy(h, io.LimitReader(t, d.Size)); err != nil {
			return wrong(err)
		}
		if "sha256:"+hex.EncodeToString(h.Sum(nil)) != d.Digest {
			return wrong(errors.New("a blob was changed"))
		}
	}
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return wrong(errors.New("it goes on"))
	}
	if err := free(e, req.Tag); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	sum := sha256.Sum256(raw)
	info := sandbox.SnapshotInfo{Tag: req.Tag, Owner: req.Owner, Status: sandbox.SnapshotReady, CreatedAt: e.Now,
		Shape: vmspec.Shape{MemoryMiB: 256, VCPUs: 1}, ContentHash: hex.EncodeToString(sum[:])}
	e.snapshots[req.Tag] = info
	return e.relateLocked(info), nil
}

// isTar reports whether a stream is one of OpenBlobs.
func isTar(head []byte) bool { return strings.HasPrefix(string(head), "manifest.json") }
