package erofs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// File types in Inode.Mode.
const (
	TypeMask    = 0o170000
	TypeSocket  = 0o140000
	TypeSymlink = 0o120000
	TypeFile    = 0o100000
	TypeBlock   = 0o060000
	TypeDir     = 0o040000
	TypeChar    = 0o020000
	TypeFifo    = 0o010000
)

// Inode is a file, a directory or another object. Several names may have the same inode (hard links), except for
// directories.
type Inode struct {
	Mode         uint16 // type and permission bits
	UID, GID     uint32
	Mtime        int64  // seconds since 1970
	MtimeNsec    uint32 // 0 to 999999999
	Major, Minor uint32 // of a device node
	Size         int64  // of a regular file, in bytes
	Target       string // of a symbolic link
	Xattrs       map[string]string
	Children     map[string]*Inode // of a directory

	place
}

// place is the position of an inode in a planned image.
type place struct {
	planned bool
	number  uint32 // inode number for 32-bit programs
	at      int64  // offset of the inode; 0 before it is placed
	core    int64  // bytes of inode and attributes
	size    int64
	inline  bool   // the last partial block follows the inode
	block   uint32 // first data block
	nlink   uint32
	parent  *Inode // of a directory
	blocks  [][]string
}

// ErrTree is wrapped by errors about a tree that the format cannot hold.
var ErrTree = errors.New("not possible in an EROFS image")

const maxName = 255 // bytes

// Type returns the type bits.
func (n *Inode) Type() uint16 { return n.Mode & TypeMask }

func (n *Inode) check() error {
	if n.Type() == TypeFile && n.Size < 0 {
		return fmt.Errorf("%w: a file of %d bytes", ErrTree, n.Size)
	}
	if n.Type() == TypeSymlink && (n.Target == "" || len(n.Target) >= blockSize) {
		return fmt.Errorf("%w: a symbolic link to a path of %d bytes", ErrTree, len(n.Target))
	}
	if fileType(n.Mode) == 0 {
		return fmt.Errorf("%w: an object of mode %o", ErrTree, n.Mode)
	}
	return checkXattrs(n.Xattrs)
}

// fileType returns the type in a directory entry. 0 is unknown.
func fileType(mode uint16) byte {
	types := []uint16{TypeFile, TypeDir, TypeChar, TypeBlock, TypeFifo, TypeSocket, TypeSymlink}
	return byte(slices.Index(types, mode&TypeMask) + 1)
}

// rdev encodes a device number as the kernel's new_encode_dev.
func (n *Inode) rdev() uint32 {
	return n.Minor&0xff | n.Major<<8 | n.Minor&^0xff<<12
}

func (n *Inode) contentSize() int64 {
	switch n.Type() {
	case TypeFile:
		return n.Size
	case TypeSymlink:
		return int64(len(n.Target))
	case TypeDir:
		return n.dirSize()
	}
	return 0
}

// splitDir distributes a directory's names to blocks. The names are sorted over all blocks.
func (n *Inode) splitDir() error {
	names := []string{".", ".."}
	for name := range n.Children {
		if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "/\x00") {
			return fmt.Errorf("%w: a file name %.64q of %d bytes", ErrTree, name, len(name))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	n.blocks = nil
	used, first := 0, 0
	for i, name := range names {
		need := direntSize + len(name)
		if used+need > blockSize {
			n.blocks = append(n.blocks, names[first:i])
			used, first = 0, i
		}
		used += need
	}
	n.blocks = append(n.blocks, names[first:])
	return nil
}

func (n *Inode) dirSize() int64 {
	last := n.blocks[len(n.blocks)-1]
	size := int64(len(n.blocks)-1) * blockSize
	for _, name := range last {
		size += int64(direntSize + len(name))
	}
	return size
}

// child returns the inode of a name, including "." and "..".
func (n *Inode) child(name string) *Inode {
	switch name {
	case ".":
		return n
	case "..":
		return n.parent
	}
	return n.Children[name]
}
