package build

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// DefaultTag is the tag of a name without one.
const DefaultTag = "default"

var (
	aName = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	aTag  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
)

// ParseName splits a template's name: NAME or NAMESPACE/NAME, both with an optional :TAG. It
// ignores case and the namespace. The tag is empty if the name has none.
func ParseName(s string) (name, tag string, err error) {
	bare, tag, tagged := strings.Cut(strings.TrimSpace(s), ":")
	ns, rest, spaced := strings.Cut(bare, "/")
	if !spaced {
		ns, rest = "x", bare
	}
	name = strings.ToLower(rest)
	if !aName.MatchString(strings.ToLower(ns)) || !aName.MatchString(name) {
		return "", "", sandbox.Errorf(sandbox.ErrInvalid, "",
			"Invalid template name format: %q: want NAME or NAME:TAG, of letters, digits, - and _", sandbox.Clip(s))
	}
	if tagged && !aTag.MatchString(tag) {
		return "", "", badTag(tag)
	}
	return name, tag, nil
}

func badTag(tag string) error {
	return sandbox.Errorf(sandbox.ErrInvalid, "", "Invalid tag: %q: want letters, digits, '.', - and _", sandbox.Clip(tag))
}

// CheckTags returns the tags without duplicates.
func CheckTags(tags []string) ([]string, error) {
	var out []string
	for _, t := range tags {
		if t = strings.TrimSpace(t); !aTag.MatchString(t) {
			return nil, badTag(t)
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	if len(out) > maxTags {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "", "%d tags, want at most %d", len(out), maxTags)
	}
	return out, nil
}

// maxTags limits the tags of one request and of one template.
const maxTags = 100

// templateAlphabet is the alphabet of IDs in E2B's form.
const templateAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"

func newTemplateID() string {
	b := make([]byte, 20)
	_, _ = rand.Read(b) // never fails
	for i := range b {
		b[i] = templateAlphabet[int(b[i])%len(templateAlphabet)]
	}
	return string(b)
}

// newBuildID returns a UUID, because clients parse it as one.
func newBuildID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return UUID(b)
}

// UUID formats random bytes, or bytes of a digest, as a UUID of version 4.
func UUID(b [16]byte) string {
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// newSnapshotTag returns a new tag for a layer's snapshot.
func newSnapshotTag() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return "e2b-" + hex.EncodeToString(b[:])
}
