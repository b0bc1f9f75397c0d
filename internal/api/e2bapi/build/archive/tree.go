package archive

import (
	"archive/tar"
	"fmt"
	"hash/maphash"
	"strings"
)

// nameKey represents a name in a tree and in a set of folders. Two seeds make 128 bits. A sender
// does not know the seeds, so it cannot produce collisions.
type nameKey [2]uint64

// keyer computes keys of names.
type keyer [2]maphash.Seed

func newKeyer() keyer { return keyer{maphash.MakeSeed(), maphash.MakeSeed()} }

func (k keyer) key(name string) nameKey {
	return nameKey{maphash.String(k[0], name), maphash.String(k[1], name)}
}

// tree holds the type of each name in an archive, and of each folder above it. It stores keys
// instead of names, because a sender may choose very long names.
type tree struct {
	keyer
	kinds map[nameKey]byte
	max   int // number of names that kinds may hold
}

func newTree(limit int) *tree { return &tree{newKeyer(), map[nameKey]byte{}, limit} }

// add records an entry and the folders above it. It refuses an entry below a file or a link,
// because tar would unpack it to the target of the link.
func (t *tree) add(name string, kind byte) error {
	if old, ok := t.kinds[t.key(name)]; ok && old != kind {
		return fmt.Errorf("%w: %q is two things", ErrBad, short(name))
	}
	if err := t.put(name, kind); err != nil {
		return err
	}
	for end := strings.LastIndexByte(name, '/'); end > 0; end = strings.LastIndexByte(name[:end], '/') {
		switch old, ok := t.kinds[t.key(name[:end])]; {
		case ok && old != tar.TypeDir:
			return fmt.Errorf("%w: %q is below what is no folder", ErrBad, short(name))
		case ok: // the folders above it are in the tree as well
			return nil
		}
		if err := t.put(name[:end], tar.TypeDir); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) put(name string, kind byte) error {
	t.kinds[t.key(name)] = kind
	if len(t.kinds) > t.max {
		return fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, t.max)
	}
	return nil
}
