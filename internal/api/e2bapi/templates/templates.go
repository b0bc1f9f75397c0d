// Package templates converts between E2B's template names and the tags of their snapshots. Both
// directions work without a list: a name is a tag, and a name with a version (name:version) is a
// tag with two parts.
package templates

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Namespace is the only namespace, of all named snapshots.
const Namespace = "local"

// versioned separates the parts of a tag with a version. standard is the version left out.
const (
	versioned = "--"
	standard  = "default"
)

// part matches a name, a version or a namespace.
var part = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Tag returns the tag for a client's name of a template or snapshot: NAME or NAMESPACE/NAME, both
// with an optional :VERSION.
func Tag(name string) (string, error) {
	bare, version, hasVersion := strings.Cut(name, ":")
	if ns, rest, ok := strings.Cut(bare, "/"); ok {
		if !part.MatchString(ns) {
			return "", invalid(name)
		}
		bare = rest
	}
	if !part.MatchString(bare) || hasVersion && !part.MatchString(version) {
		return "", invalid(name)
	}
	if hasVersion && version != standard {
		bare += versioned + version
	}
	if len(bare) > 64 {
		return "", invalid(name)
	}
	return bare, nil
}

// TagOr is Tag with an empty string for an invalid name.
func TagOr(name string) string {
	tag, _ := Tag(name)
	return tag
}

func invalid(name string) error {
	return sandbox.Errorf(sandbox.ErrInvalid, "",
		"template %q: want NAME, NAMESPACE/NAME or NAME:TAG, of letters, digits, - and _", sandbox.Clip(name))
}

// SnapshotID returns the full name of a snapshot for clients. Name returns it without the version.
func SnapshotID(tag string) string {
	name, version := split(tag)
	return fmt.Sprintf("%s/%s:%s", Namespace, name, version)
}

// Name returns the name of a tag, with its namespace and without its version.
func Name(tag string) string {
	name, _ := split(tag)
	return Namespace + "/" + name
}

func split(tag string) (name, version string) {
	if at := strings.LastIndex(tag, versioned); at > 0 && at+len(versioned) < len(tag) {
		return tag[:at], tag[at+len(versioned):]
	}
	return tag, standard
}

// Matches reports whether a client's name means a tag. The name may be a bare name, a name in a
// namespace or a name with a version.
func Matches(tag, asked string) bool {
	name, _ := split(tag)
	bare := asked
	if ns, rest, ok := strings.Cut(asked, "/"); ok && part.MatchString(ns) {
		bare = rest
	}
	if !strings.Contains(bare, ":") {
		return bare == name || bare == tag
	}
	want, err := Tag(asked)
	return err == nil && want == tag
}

// Version returns the version of a tag.
func Version(tag string) string {
	_, version := split(tag)
	return version
}
