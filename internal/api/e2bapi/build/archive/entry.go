package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"
	"strings"
)

// ErrBad reports an invalid archive, or one with forbidden content.
var ErrBad = errors.New("the archive is not usable")

// ErrTooLarge reports an archive that exceeds a limit.
var ErrTooLarge = errors.New("the archive is too large")

// Limits of names in Linux, in bytes.
const (
	maxPath = 4095
	maxName = 255
	// maxDepth limits the folders above an entry, because each of them is looked up.
	maxDepth = 100
)

// cleanName returns the name of an entry relative to the archive's root. It refuses names outside
// the root instead of changing them.
func cleanName(name string) (string, error) {
	switch {
	case name == "", strings.ContainsRune(name, 0), len(name) > maxPath:
		return "", fmt.Errorf("%w: a name of %d bytes", ErrBad, len(name))
	case path.IsAbs(name):
		return "", fmt.Errorf("%w: %q is an absolute path", ErrBad, short(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("%w: %q leads out of it", ErrBad, short(name))
		}
		if len(part) > maxName {
			return "", fmt.Errorf("%w: a name of %d bytes", ErrBad, len(part))
		}
	}
	name = path.Clean(name)
	if strings.Count(name, "/") > maxDepth {
		return "", fmt.Errorf("%w: %q has more than %d folders above it", ErrTooLarge, short(name), maxDepth)
	}
	return name, nil
}

func short(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// check checks a header: the type of the entry, its name and, for a link, its target.
func (t *tree) check(h *tar.Header) (name string, err error) {
	if name, err = cleanName(h.Name); err != nil {
		return "", err
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return "", fmt.Errorf("%w: %q is a sparse file", ErrBad, short(name))
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
	case tar.TypeReg:
		if name == "." {
			return "", fmt.Errorf("%w: its root is a file", ErrBad)
		}
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxPath || strings.ContainsRune(h.Linkname, 0) || name == "." {
			return "", fmt.Errorf("%w: the link %q leads nowhere", ErrBad, short(name))
		}
	case tar.TypeLink:
		to, err := cleanName(h.Linkname)
		if err != nil {
			return "", err
		}
		if t.kinds[t.key(to)] != tar.TypeReg || to == name {
			return "", fmt.Errorf("%w: the hard link %q is to no file before it", ErrBad, short(name))
		}
		h.Linkname = to
	default:
		return "", fmt.Errorf("%w: %q is neither a file, a folder nor a link", ErrBad, short(name))
	}
	kind := h.Typeflag
	if kind == tar.TypeLink {
		kind = tar.TypeReg
	}
	return name, t.add(name, kind)
}
