// Package templates tells what E2B's clients call a template, and the tag of the snapshot that
// stands for it. The two can be told from each other without a list: a name is a tag, and what
// has a version (name:version) is a tag of two parts.
package templates

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Namespace is the one that named snapshots are in; there is no other.
const Namespace = "local"

// versioned is between the parts of a tag that has a version; standard is the version that
// is not written.
const (
	versioned = "--"
	standard  = "default"
)

// part is what a name, a version or a namespace may be.
var part = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Known are templates that clients fill in by themselves. Their snapshots are made of images
// of the same names when somebody asks for the first sandbox.
func Known() []string { return []string{"base", "code-interpreter-v1"} }

// Tag is the tag of a template or snapshot as a client names it: NAME, NAMESPACE/NAME, either
// with :VERSION.
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

func invalid(name string) error {
	return sandbox.Errorf(sandbox.ErrInvalid, "",
		"template %q: want NAME, NAMESPACE/NAME or NAME:TAG, of letters, digits, - and _", sandbox.Clip(name))
}

// SnapshotID is what clients are told a snapshot is called, and Name that without its version.
func SnapshotID(tag string) string {
	name, version := split(tag)
	return fmt.Sprintf("%s/%s:%s", Namespace, name, version)
}

// Name is the name of a tag, with its namespace and without its version.
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

// Matches reports whether a tag is what a client asks for by a bare name, a name in a
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

// Version is that of a tag.
func Version(tag string) string {
	_, version := split(tag)
	return version
}
