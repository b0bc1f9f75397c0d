package signature

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// ErrRefused is wrapped if an artifact has no signature of a wanted key.
var ErrRefused = errors.New("signature refused")

// Bounds of what is read.
const (
	MaxPayload    = 64 << 10 // bytes
	MaxSignatures = 32       // of one artifact
	maxSignature  = 256      // bytes; ECDSA P-256 has at most 72
)

// payloadType is the fixed type of the statement in a payload.
const payloadType = "cosign container image signature"

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Signature is a signed statement about an artifact.
type Signature struct {
	Payload   []byte `json:"payload"`   // the statement, JSON
	Signature []byte `json:"signature"` // of the payload's SHA-256, ASN.1
}

// statement is the content of a payload.
type statement struct {
	Critical critical       `json:"critical"`
	Optional map[string]any `json:"optional"`
}

type critical struct {
	Identity identity `json:"identity"`
	Image    image    `json:"image"`
	Type     string   `json:"type"`
}

type identity struct {
	Repository string `json:"docker-reference"`
}

type image struct {
	Digest string `json:"docker-manifest-digest"`
}

// Sign states that an artifact with a digest belongs to a repository.
func (k *PrivateKey) Sign(repository, digest string) (Signature, error) {
	if !digestPattern.MatchString(digest) {
		return Signature{}, fmt.Errorf("sign: bad digest %.100q", digest)
	}
	payload, err := json.Marshal(statement{Critical: critical{identity{repository}, image{digest}, payloadType}})
	if err != nil {
		return Signature{}, err
	}
	sum := sha256.Sum256(payload)
	signed, err := ecdsa.SignASN1(rand.Reader, k.ecdsa, sum[:])
	return Signature{payload, signed}, err
}

// errOther: the signature is another key's.
var errOther = errors.New("it was made with another key")

// Verify checks a signature of the artifact with a digest. It returns the repository in the signed statement. The
// statement is read only after the cryptographic check.
func (k *PublicKey) Verify(s Signature, digest string) (repository string, err error) {
	if len(s.Payload) > MaxPayload || len(s.Signature) > maxSignature {
		return "", fmt.Errorf("it has %d bytes with a payload of %d", len(s.Signature), len(s.Payload))
	}
	sum := sha256.Sum256(s.Payload)
	if !ecdsa.VerifyASN1(k.ecdsa, sum[:], s.Signature) {
		return "", errOther
	}
	var st statement
	if err := json.Unmarshal(s.Payload, &st); err != nil {
		return "", fmt.Errorf("decode its payload: %w", err)
	}
	switch c := st.Critical; {
	case c.Type != payloadType:
		return "", fmt.Errorf("its type is %.100q, want %q", c.Type, payloadType)
	case c.Image.Digest != digest:
		return "", fmt.Errorf("it is for another artifact, %.100q", c.Image.Digest)
	default:
		return c.Identity.Repository, nil
	}
}

// Require reports the first signature of a key, or ErrRefused with the reasons.
func Require(k *PublicKey, all []Signature, digest string) error {
	_, err := first(all, digest, func(s Signature) error {
		_, err := k.Verify(s, digest)
		return err
	})
	return err
}

// first returns the index of the first signature that good accepts.
func first(all []Signature, digest string, good func(Signature) error) (int, error) {
	if len(all) == 0 {
		return -1, fmt.Errorf("%w: %s is not signed", ErrRefused, digest)
	}
	reasons := make([]error, 0, MaxSignatures)
	for i, s := range all {
		if i == MaxSignatures {
			reasons = append(reasons, fmt.Errorf("%d more signatures were not tried", len(all)-i))
			break
		}
		err := good(s)
		if err == nil {
			return i, nil
		}
		reasons = append(reasons, fmt.Errorf("signature %d: %w", i+1, err))
	}
	return -1, fmt.Errorf("%w for %s: %w", ErrRefused, digest, errors.Join(reasons[:min(len(reasons), 4)]...))
}
