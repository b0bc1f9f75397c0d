package hub

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// The types of the artifact and its blobs.
const (
	ArtifactType = "application/vnd.forkd.snapshot.v1"
	ManifestType = "application/vnd.oci.image.manifest.v1+json"
	ConfigType   = "application/vnd.forkd.snapshot.config.v1+json"
	TableType    = "application/vnd.forkd.snapshot.table.v1"
	FramesType   = "application/vnd.forkd.snapshot.frames.v1+zstd"
)

// Keys of annotations.
const (
	nameKey  = "vnd.forkd.name"  // of a blob: the file, or layer/ID
	bytesKey = "vnd.forkd.bytes" // of frames: the size of the content
	archKey  = "vnd.forkd.architecture"
	// CreatedKey is the time of the snapshot, in RFC 3339.
	CreatedKey = "org.opencontainers.image.created"
	// TitleKey is the tag that the snapshot had.
	TitleKey = "org.opencontainers.image.title"
)

const (
	architecture = "amd64"
	layerPrefix  = "layer/"
	// MaxManifest limits the artifact's manifest, in bytes, as registries do.
	MaxManifest = 4 << 20
	// maxParts limits the files and layers of a snapshot.
	maxParts = 64 + 9*snapshot.MaxChain
)

// Descriptor names a blob.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Hex returns the digest without its algorithm.
func (d Descriptor) Hex() string { return d.Digest[len("sha256:"):] }

// Artifact is the manifest of a snapshot in a registry or a file (OCI image manifest 1.1).
type Artifact struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType"`
	Config        Descriptor        `json:"config"`
	Layers        []Descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// Part is a file or a layer of a snapshot, in two blobs.
type Part struct {
	Name          string // of a file, or layer/ID
	Content       int64  // bytes of the content
	Table, Frames Descriptor
}

func describe(mediaType string, b []byte) Descriptor {
	sum := sha256.Sum256(b)
	return Descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(b))}
}

func (a *Artifact) encode() ([]byte, error) { return json.Marshal(a) }

// newArtifact begins the manifest of a snapshot.
func newArtifact(config []byte, m *snapshot.Manifest) *Artifact {
	return &Artifact{SchemaVersion: 2, MediaType: ManifestType, ArtifactType: ArtifactType,
		Config: describe(ConfigType, config), Annotations: map[string]string{
			archKey: architecture, TitleKey: m.Tag, CreatedKey: m.Created().UTC().Format(time.RFC3339),
		}}
}

func (a *Artifact) add(name string, content int64, table, frames Descriptor) {
	table.Annotations = map[string]string{nameKey: name}
	frames.Annotations = map[string]string{nameKey: name, bytesKey: strconv.FormatInt(content, 10)}
	a.Layers = append(a.Layers, table, frames)
}

// Blobs returns all blobs, the configuration first.
func (a *Artifact) Blobs() []Descriptor { return append([]Descriptor{a.Config}, a.Layers...) }

// Bytes returns the size of all blobs.
func (a *Artifact) Bytes() (n int64) {
	for _, d := range a.Blobs() {
		n += d.Size
	}
	return n
}

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// ParseArtifact decodes and checks a manifest. It refuses other artifacts, formats and architectures.
func ParseArtifact(b []byte) (*Artifact, error) {
	if len(b) > MaxManifest {
		return nil, invalid("the manifest has more than %d bytes", MaxManifest)
	}
	a := new(Artifact)
	if err := json.Unmarshal(b, a); err != nil {
		return nil, invalid("decode the manifest: %w", err)
	}
	switch {
	case a.ArtifactType != ArtifactType:
		return nil, invalid("it is an artifact or an image of type %.100q, not a snapshot of type %s; `forkd image pull` "+
			"makes images", a.kind(), ArtifactType)
	case a.SchemaVersion != 2 || a.MediaType != "" && a.MediaType != ManifestType:
		return nil, invalid("the manifest has schema %d and type %.100q", a.SchemaVersion, a.MediaType)
	case a.Annotations[archKey] != architecture:
		return nil, invalid("the snapshot is of the architecture %.40q, this host is %s",
			a.Annotations[archKey], architecture)
	case a.Config.MediaType != ConfigType || a.Config.Size > snapshot.MaxManifestBytes:
		return nil, invalid("the configuration has %d bytes and type %.100q", a.Config.Size, a.Config.MediaType)
	case len(a.Layers)%2 != 0 || len(a.Layers) > 2*maxParts:
		return nil, invalid("%d blobs, want pairs and at most %d", len(a.Layers), 2*maxParts)
	}
	for _, d := range a.Blobs() {
		if !digestPattern.MatchString(d.Digest) || d.Size < 0 || d.Size > MaxContent+MaxContent/64 {
			return nil, invalid("a blob of %d bytes with the digest %.100q", d.Size, d.Digest)
		}
	}
	if _, err := a.Parts(); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *Artifact) kind() string {
	if a.ArtifactType != "" {
		return a.ArtifactType
	}
	return a.Config.MediaType
}

// Parts returns the files and layers. The first is the state, so that it can be judged before the rest is fetched.
func (a *Artifact) Parts() ([]Part, error) {
	var out []Part
	seen := map[string]bool{}
	for i := 0; i+1 < len(a.Layers); i += 2 {
		t, f := a.Layers[i], a.Layers[i+1]
		p := Part{Name: t.Annotations[nameKey], Table: t, Frames: f}
		n, err := strconv.ParseInt(f.Annotations[bytesKey], 10, 64)
		switch {
		case t.MediaType != TableType || f.MediaType != FramesType || f.Annotations[nameKey] != p.Name:
			return nil, invalid("blobs %d and %d are no table and frames", i, i+1)
		case err != nil || n < 0 || n > MaxContent:
			return nil, invalid("%.80q has %.40q bytes of content", p.Name, f.Annotations[bytesKey])
		case t.Size > maxTable || t.Size != tableHead+entrySize*((t.Size-tableHead)/entrySize):
			return nil, invalid("the table of %.80q has %d bytes", p.Name, t.Size)
		case seen[p.Name]:
			return nil, invalid("%.80q occurs twice", p.Name)
		}
		seen[p.Name], p.Content = true, n
		out = append(out, p)
	}
	return out, nil
}

// travelling returns the manifest of a snapshot as it is sent. What only its host knows stays there: its owner, its
// ancestry, the sandbox it was branched from, and the addresses of names.
func travelling(m *snapshot.Manifest) *snapshot.Manifest {
	out := *m
	out.Owner, out.Parent, out.Ancestors, out.Branch, out.Steps = "", nil, nil, nil, nil
	out.NetworkFacts = nil // a policy by names would trust its addresses
	out.Memory.Own = len(out.Memory.Layers)
	out.Disks = slices.Clone(m.Disks)
	for i, d := range out.Disks {
		out.Disks[i].Own = len(d.Layers)
	}
	return &out
}

// Manifest decodes the configuration, and compares it with the artifact.
func (a *Artifact) Manifest(config []byte) (*snapshot.Manifest, error) {
	parts, err := a.Parts()
	if err != nil {
		return nil, err
	}
	return parseConfig(config, parts)
}

// parseConfig decodes the configuration, which lists exactly the parts of the artifact.
func parseConfig(b []byte, parts []Part) (*snapshot.Manifest, error) {
	m, err := snapshot.DecodeManifest(b)
	if err != nil {
		return nil, invalid("configuration: %w", err)
	}
	want := map[string]int64{}
	for _, f := range m.Files {
		want[f.Name] = f.Bytes
	}
	for _, id := range m.LayerIDs() {
		want[layerPrefix+id.String()] = -1 // the layer's header has its size
	}
	for _, p := range parts {
		n, listed := want[p.Name]
		if !listed || n >= 0 && n != p.Content {
			return nil, invalid("the configuration does not list %.80q with %d bytes", p.Name, p.Content)
		}
		delete(want, p.Name)
	}
	switch {
	case len(want) > 0:
		return nil, invalid("%d files and layers of the configuration are missing", len(want))
	case len(parts) == 0 || parts[0].Name != m.State.File:
		return nil, invalid("the state does not come first")
	}
	return travelling(m), nil
}

// layerOf returns the ID of a part that is a layer.
func (p Part) layerOf() (layer.ID, bool) {
	s, is := bytes.CutPrefix([]byte(p.Name), []byte(layerPrefix))
	if !is {
		return layer.ID{}, false
	}
	id, err := layer.ParseID(string(s))
	return id, err == nil
}

// readBlob reads a small blob and compares it with its descriptor.
func readBlob(r io.Reader, d Descriptor) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, d.Size+1))
	if err != nil {
		return nil, err
	}
	return b, checkBlob(b, d)
}

func checkBlob(b []byte, d Descriptor) error {
	if got := describe("", b); got.Digest != d.Digest || got.Size != d.Size {
		return invalid("a blob of %d bytes has the digest %s, want %d and %s", got.Size, got.Digest, d.Size, d.Digest)
	}
	return nil
}
