package signature

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The types of signatures in registries.
const (
	// ArtifactType is the type of a manifest with signatures. Referrers of an artifact are found by it.
	ArtifactType = "application/vnd.dev.cosign.artifact.sig.v1+json"
	// ManifestType is the OCI type of the manifest.
	ManifestType = "application/vnd.oci.image.manifest.v1+json"
	// PayloadType is the type of a payload's blob.
	PayloadType = "application/vnd.dev.cosign.simplesigning.v1+json"

	signatureKey = "dev.cosignproject.cosign/signature"
)

// MaxManifest limits a manifest with signatures, in bytes.
const MaxManifest = 1 << 20

// ErrManifest is wrapped by errors about the text of a manifest with signatures.
var ErrManifest = errors.New("bad manifest of signatures")

// Tag returns the tag under which cosign keeps the signatures of an artifact.
func Tag(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".sig" }

// Descriptor describes a blob or a manifest in a registry.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Describe returns the descriptor of some bytes.
func Describe(mediaType string, b []byte) Descriptor {
	sum := sha256.Sum256(b)
	return Descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(b))}
}

// Manifest holds the signatures of one artifact: a layer for each.
type Manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        Descriptor   `json:"config"`
	Layers        []Descriptor `json:"layers"`
	Subject       *Descriptor  `json:"subject,omitempty"`
}

// Config is the content of the manifest's configuration.
var Config = []byte("{}")

// NewManifest returns a manifest without signatures for an artifact.
func NewManifest(subject Descriptor) *Manifest {
	subject.Annotations = nil
	return &Manifest{SchemaVersion: 2, MediaType: ManifestType, Config: Describe(ArtifactType, Config), Subject: &subject}
}

// Add appends a signature. The caller uploads the payload.
func (m *Manifest) Add(s Signature) {
	d := Describe(PayloadType, s.Payload)
	d.Annotations = map[string]string{signatureKey: base64.StdEncoding.EncodeToString(s.Signature)}
	m.Layers = append(m.Layers, d)
}

// Encode returns the bytes of the manifest.
func (m *Manifest) Encode() ([]byte, error) { return json.Marshal(m) }

// ParseManifest decodes a manifest with signatures. Layers of other types are left out, and layers above the limit.
func ParseManifest(raw []byte) (*Manifest, error) {
	if len(raw) > MaxManifest {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrManifest, len(raw), MaxManifest)
	}
	var m Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	all := m.Layers
	m.Layers = nil
	for _, l := range all {
		if l.MediaType != PayloadType || len(m.Layers) == MaxSignatures {
			continue
		}
		if !digestPattern.MatchString(l.Digest) || l.Size < 0 || l.Size > MaxPayload {
			return nil, fmt.Errorf("%w: a payload of %d bytes with the digest %.100q", ErrManifest, l.Size, l.Digest)
		}
		m.Layers = append(m.Layers, l)
	}
	return &m, nil
}

// Of returns the signature of a layer, given its payload.
func (d Descriptor) Of(payload []byte) (Signature, error) {
	if got := Describe("", payload); got.Digest != d.Digest {
		return Signature{}, fmt.Errorf("%w: a payload has the digest %s, want %s", ErrManifest, got.Digest, d.Digest)
	}
	text := d.Annotations[signatureKey]
	signed, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(signed) == 0 || len(signed) > maxSignature {
		return Signature{}, fmt.Errorf("%w: the annotation %s is %.100q", ErrManifest, signatureKey, text)
	}
	return Signature{payload, signed}, nil
}
