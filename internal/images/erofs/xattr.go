package erofs

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// prefixes are the namespaces of attributes in the order of their numbers in the format. A name that is a whole
// prefix has an empty rest.
var prefixes = []struct {
	text  string
	index byte
}{
	{"user.", 1},
	{"system.posix_acl_access", 2},
	{"system.posix_acl_default", 3},
	{"trusted.", 4},
	{"security.", 6},
}

const (
	xattrHeader   = 12
	maxXattrName  = 255
	maxXattrValue = 1<<16 - 1
	maxXattrs     = 128 << 10 // bytes of all attributes of an inode
)

// HasXattr reports whether the format has the attribute's namespace.
func HasXattr(name string) bool {
	_, _, ok := splitXattr(name)
	return ok
}

func splitXattr(name string) (index byte, rest string, ok bool) {
	for _, p := range prefixes {
		rest, ok := strings.CutPrefix(name, p.text)
		if ok && (rest == "") != strings.HasSuffix(p.text, ".") {
			return p.index, rest, true
		}
	}
	return 0, "", false
}

func checkXattrs(all map[string]string) error {
	for name, value := range all {
		_, rest, ok := splitXattr(name)
		if !ok || len(rest) > maxXattrName || len(value) > maxXattrValue || strings.ContainsRune(name, 0) {
			return fmt.Errorf("%w: an attribute %.64q of %d bytes", ErrTree, name, len(value))
		}
	}
	if n := xattrSize(all); n > maxXattrs {
		return fmt.Errorf("%w: %d bytes of attributes", ErrTree, n)
	}
	return nil
}

// xattrSize returns the size of an inode's attributes, with the header.
func xattrSize(all map[string]string) int64 {
	if len(all) == 0 {
		return 0
	}
	n := int64(xattrHeader)
	for name, value := range all {
		_, rest, _ := splitXattr(name)
		n += align(int64(4+len(rest)+len(value)), 4)
	}
	return n
}

func appendXattrs(b []byte, all map[string]string) []byte {
	if len(all) == 0 {
		return b
	}
	b = append(b, make([]byte, xattrHeader)...)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		index, rest, _ := splitXattr(name)
		value := all[name]
		b = append(b, byte(len(rest)), index)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
		b = append(append(b, rest...), value...)
		b = append(b, make([]byte, align(int64(len(b)), 4)-int64(len(b)))...)
	}
	return b
}

func align(n, to int64) int64 { return (n + to - 1) / to * to }
