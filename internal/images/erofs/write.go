package erofs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// The superblock: Documentation/filesystems/erofs.rst and fs/erofs/erofs_fs.h of Linux.
const (
	superOffset  = 1024
	superMagic   = 0xE0F5E1E2
	compatMtime  = 2
	blockBits    = 12
	layoutPlain  = 0
	layoutInline = 2
)

// WriteMetadata writes everything except the content of regular files.
func (im *Image) WriteMetadata(w io.WriterAt) error {
	if _, err := w.WriteAt(im.superblock(), 0); err != nil {
		return fmt.Errorf("write superblock: %w", err)
	}
	for _, n := range im.inodes {
		if _, err := w.WriteAt(n.encode(), n.at); err != nil {
			return fmt.Errorf("write inode: %w", err)
		}
		var content []byte
		switch n.Type() {
		case TypeSymlink:
			content = []byte(n.Target)
		case TypeDir:
			content = n.encodeDir()
		default:
			continue
		}
		if err := n.write(w, bytes.NewReader(content)); err != nil {
			return err
		}
	}
	return nil
}

// WriteFile writes the content of a regular file of the tree. r must have n.Size bytes. Blocks of zeros become holes
// of a new file.
func (im *Image) WriteFile(w io.WriterAt, n *Inode, r io.Reader) error {
	if n.Type() != TypeFile || !n.planned {
		return fmt.Errorf("%w: content of an object that is not a file of the tree", ErrTree)
	}
	return n.write(w, r)
}

func (im *Image) superblock() []byte {
	b := make([]byte, blockSize)
	s := b[superOffset:]
	le := binary.LittleEndian
	le.PutUint32(s[0:], superMagic)
	le.PutUint32(s[8:], compatMtime)
	s[12] = blockBits
	le.PutUint16(s[14:], uint16(im.root.nid())) // #nosec G115 -- the first inode
	le.PutUint64(s[16:], uint64(len(im.inodes)))
	le.PutUint32(s[36:], uint32(im.size/blockSize)) // #nosec G115 -- placeData compared it
	copy(s[48:], im.UUID[:])
	return b
}

func (n *Inode) nid() uint64 { return uint64(n.at / slotSize) } // #nosec G115 -- offsets are positive

func (n *Inode) encode() []byte {
	b := make([]byte, inodeSize, n.core)
	le := binary.LittleEndian
	format := uint16(1) // extended
	if n.inline {
		format |= layoutInline << 1
	}
	le.PutUint16(b[0:], format)
	if x := n.core - inodeSize; x > 0 {
		le.PutUint16(b[2:], uint16((x-xattrHeader)/4+1)) // #nosec G115 -- checkXattrs limits it
	}
	le.PutUint16(b[4:], n.Mode)
	le.PutUint64(b[8:], uint64(n.size)) // #nosec G115 -- not negative
	le.PutUint32(b[16:], n.union())
	le.PutUint32(b[20:], n.number)
	le.PutUint32(b[24:], n.UID)
	le.PutUint32(b[28:], n.GID)
	le.PutUint64(b[32:], uint64(n.Mtime)) // #nosec G115 -- the kernel reads it as signed
	le.PutUint32(b[40:], n.MtimeNsec)
	le.PutUint32(b[44:], n.nlink)
	return appendXattrs(b, n.Xattrs)
}

// union returns the field with the first block or the device number.
func (n *Inode) union() uint32 {
	if t := n.Type(); t == TypeChar || t == TypeBlock {
		return n.rdev()
	}
	return n.block
}

func (n *Inode) encodeDir() []byte {
	b := make([]byte, 0, n.size)
	for i, names := range n.blocks {
		if i > 0 {
			b = b[:i*blockSize] // the rest of the block is zero
		}
		offset := len(names) * direntSize
		for _, name := range names {
			c := n.child(name)
			b = binary.LittleEndian.AppendUint64(b, c.nid())
			b = binary.LittleEndian.AppendUint16(b, uint16(offset)) // #nosec G115 -- within a block
			b = append(b, fileType(c.Mode), 0)
			offset += len(name)
		}
		for _, name := range names {
			b = append(b, name...)
		}
	}
	return b
}

// run is the number of blocks written at once.
const run = 64

// write writes an inode's content: whole blocks to the data, and an inline rest behind the inode.
func (n *Inode) write(w io.WriterAt, r io.Reader) error {
	buf := make([]byte, min(run*blockSize, align(n.size, blockSize)))
	for done := int64(0); done < n.size; {
		part := buf[:min(int64(len(buf)), n.size-done)]
		if _, err := io.ReadFull(r, part); err != nil {
			return fmt.Errorf("read content: %w", err)
		}
		if err := n.writePart(w, part, done); err != nil {
			return fmt.Errorf("write content: %w", err)
		}
		done += int64(len(part))
	}
	return nil
}

func (n *Inode) writePart(w io.WriterAt, part []byte, done int64) error {
	whole := len(part)
	if n.inline && done+int64(whole) == n.size {
		whole -= whole % blockSize
		if _, err := w.WriteAt(part[whole:], n.at+n.core); err != nil {
			return err
		}
	}
	if whole == 0 || zero(part[:whole]) {
		return nil
	}
	_, err := w.WriteAt(part[:whole], int64(n.block)*blockSize+done)
	return err
}

func zero(b []byte) bool {
	for len(b) > 0 {
		k := min(len(b), len(zeros))
		if !bytes.Equal(b[:k], zeros[:k]) {
			return false
		}
		b = b[k:]
	}
	return true
}

var zeros [blockSize]byte
