package ociimage

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// IsReference reports whether a text names a registry, a tag or a digest. A plain word could also be the name of an
// image or a recipe.
func IsReference(s string) bool {
	if s == "" || strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") {
		return false
	}
	host, _, path := strings.Cut(s, "/")
	if !strings.ContainsAny(s, ":@") && (!path || host != "localhost" && !strings.Contains(host, ".")) {
		return false
	}
	_, err := name.ParseReference(s)
	return err == nil
}

// Canonical returns a reference with its registry and its tag.
func Canonical(ref string) (string, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return "", invalid("reference %.200q: %w", ref, err)
	}
	return r.Name(), nil
}

// Host returns the registry of a reference, with its port.
func Host(ref string) string {
	r, err := name.ParseReference(ref)
	if err != nil {
		return ""
	}
	return r.Context().RegistryStr()
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

const maxImageName = 64

// NameOf proposes the name of a forkd image for a reference: the repository's last part with the tag, unless this is
// latest, or with the first digits of the digest.
func NameOf(ref string) string {
	r, err := name.ParseReference(ref)
	if err != nil {
		return ""
	}
	repository := r.Context().RepositoryStr()
	base := repository[strings.LastIndex(repository, "/")+1:]
	switch id := r.Identifier(); {
	case strings.HasPrefix(id, "sha256:"):
		base += "-" + id[len("sha256:"):][:12]
	case id != "latest":
		base += "-" + id
	}
	return plainName(base)
}

// NameOfFile proposes the name of a forkd image for a file.
func NameOfFile(path string) string {
	base := filepath.Base(filepath.Clean(path))
	for _, ext := range []string{".gz", ".zst", ".tgz", ".tar", ".oci"} {
		base = strings.TrimSuffix(base, ext)
	}
	return plainName(base)
}

func plainName(s string) string {
	s = strings.Trim(notInNames.ReplaceAllString(s, "-"), "-")
	return s[:min(len(s), maxImageName)]
}
