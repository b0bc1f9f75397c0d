package erofs

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

const (
	blockSize  = 4096
	inodeSize  = 64 // extended inode
	direntSize = 12
	slotSize   = 32 // inodes are addressed in units of this size

	// maxInline limits content after an inode. More would leave large gaps at the ends of metadata blocks.
	maxInline = 2048
)

// Image is a planned image. Its tree must not change anymore.
type Image struct {
	UUID   [16]byte
	root   *Inode
	inodes []*Inode
	size   int64
}

// Plan places a tree. The root must be a directory. All errors wrap ErrTree.
func Plan(root *Inode, uuid [16]byte) (*Image, error) {
	if root.Type() != TypeDir {
		return nil, fmt.Errorf("%w: a root that is not a directory", ErrTree)
	}
	im := &Image{UUID: uuid, root: root}
	root.parent = root
	if err := im.collect(root, ""); err != nil {
		return nil, err
	}
	end := im.placeInodes()
	return im, im.placeData(end)
}

// Size returns the size of the image in bytes.
func (im *Image) Size() int64 { return im.size }

// collect lists all inodes, each once, and counts their names.
func (im *Image) collect(n *Inode, path string) error {
	n.nlink++
	if n.planned {
		if n.Type() == TypeDir {
			return fmt.Errorf("%w: %q is a second name of a directory", ErrTree, path)
		}
		return nil
	}
	n.planned = true
	if err := n.check(); err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	im.inodes = append(im.inodes, n)
	n.number = uint32(len(im.inodes)) // #nosec G115 -- memory ends before 32 bits do
	if n.Type() == TypeDir {
		return im.collectChildren(n, path)
	}
	return nil
}

func (im *Image) collectChildren(n *Inode, path string) error {
	if err := n.splitDir(); err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	n.nlink++ // "."
	for _, name := range slices.Sorted(maps.Keys(n.Children)) {
		c := n.Children[name]
		if c.Type() == TypeDir {
			c.parent = n
			n.nlink++ // ".." of c
		}
		if err := im.collect(c, path+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

// placeInodes places inodes, attributes and inline content from the second block on. It returns the end.
func (im *Image) placeInodes() int64 {
	at := int64(blockSize)
	for _, n := range im.inodes {
		n.core = inodeSize + xattrSize(n.Xattrs)
		n.size = n.contentSize()
		tail := n.size % blockSize
		n.inline = tail > 0 && tail <= maxInline && n.core+tail <= blockSize
		need := n.core
		if n.inline {
			need += tail
		}
		// The kernel reads inline content from one block.
		if n.inline && at%blockSize+need > blockSize {
			at = align(at, blockSize)
		}
		n.at = at
		at = align(at+need, slotSize)
	}
	return at
}

// placeData places whole blocks of content.
func (im *Image) placeData(end int64) error {
	next := align(end, blockSize) / blockSize
	for _, n := range im.inodes {
		if n.size > math.MaxInt64-2*blockSize {
			return fmt.Errorf("%w: a file of %d bytes", ErrTree, n.size)
		}
		blocks := align(n.size, blockSize) / blockSize
		if n.inline {
			blocks = n.size / blockSize
		}
		if next+blocks > math.MaxUint32 {
			return fmt.Errorf("%w: more than 16 TiB", ErrTree)
		}
		n.block = uint32(next) // #nosec G115 -- compared above
		next += blocks
	}
	im.size = next * blockSize
	return nil
}
