package ociimage

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/forkd/forkd/internal/images/erofs"
)

// Whiteouts: https://github.com/opencontainers/image-spec/blob/v1.1.1/layer.md#whiteouts
const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
	aufsPrefix     = ".wh..wh." // AUFS' own files
)

// maxKept limits the files whose content is kept, in bytes.
const maxKept = 1 << 20

// kept reports whether the content of a file is needed before the image is written.
func kept(parts []string) bool {
	return len(parts) == 2 && parts[0] == "etc" && (parts[1] == "passwd" || parts[1] == "group")
}

// apply merges a layer into the tree.
func (t *tree) apply(ctx context.Context, r io.Reader) error {
	t.layer++
	archive := tar.NewReader(r)
	for entry := 0; ; entry++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return unpackError(err)
		}
		if err := t.step(1); err != nil {
			return err
		}
		if err := t.add(h, entry, archive); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

func (t *tree) add(h *tar.Header, entry int, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if len(h.Name) > maxPath || len(h.Linkname) > maxPath {
		return invalid("a path of more than %d bytes", maxPath)
	}
	parts := split(h.Name)
	if len(parts) == 0 {
		return t.setRoot(h)
	}
	base := parts[len(parts)-1]
	if strings.HasPrefix(base, whiteoutPrefix) {
		return t.whiteout(parts[:len(parts)-1], base)
	}
	for _, p := range parts {
		if strings.HasPrefix(p, aufsPrefix) {
			return nil
		}
	}
	dir, err := t.folder(parts[:len(parts)-1], true)
	if err != nil {
		return err
	}
	if h.Typeflag == tar.TypeLink {
		return t.link(dir, base, h.Linkname)
	}
	n, err := t.newNode(h)
	if err != nil {
		return err
	}
	n.layer, n.entry = t.layer, entry
	if n.Type() == erofs.TypeFile && kept(parts) && n.Size <= maxKept {
		n.data = make([]byte, n.Size)
		if _, err := io.ReadFull(content, n.data); err != nil {
			return unpackError(err)
		}
	}
	return t.place(dir, base, n)
}

// place names a new object. A folder in place of a folder keeps the content.
func (t *tree) place(dir *node, base string, n *node) error {
	if old, ok := dir.names[base]; ok && n.Type() == erofs.TypeDir && old.node.Type() == erofs.TypeDir {
		n.names = old.node.names
		old.node.Inode = n.Inode // others may have found this node already
		n = old.node
	}
	return t.put(dir, base, n)
}

func (t *tree) setRoot(h *tar.Header) error {
	if h.Typeflag != tar.TypeDir {
		return invalid("the root is not a folder")
	}
	n, err := t.newNode(h)
	if err != nil {
		return err
	}
	t.root.Inode = n.Inode
	return nil
}

// whiteout hides objects of lower layers. Objects of this layer stay, wherever the whiteout is in it.
func (t *tree) whiteout(parts []string, base string) error {
	hidden := strings.TrimPrefix(base, whiteoutPrefix)
	if base != opaqueName && strings.HasPrefix(base, aufsPrefix) {
		return nil
	}
	if hidden == "" || hidden == "." || hidden == ".." {
		return invalid("a whiteout of %q", hidden)
	}
	dir, err := t.folder(parts, false)
	if errors.Is(err, errAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	if base == opaqueName {
		return t.hide(dir)
	}
	return t.hideName(dir, hidden)
}

func (t *tree) link(dir *node, base, target string) error {
	n, err := t.find(target)
	if errors.Is(err, errAbsent) {
		return invalid("a hard link to %.200q, which is missing", target)
	}
	if err != nil {
		return err
	}
	if n.Type() == erofs.TypeDir {
		return invalid("a hard link to the folder %.200q", target)
	}
	return t.put(dir, base, n)
}

var nodeTypes = map[byte]uint16{
	tar.TypeReg: erofs.TypeFile, tar.TypeCont: erofs.TypeFile, tar.TypeGNUSparse: erofs.TypeFile,
	tar.TypeDir: erofs.TypeDir, tar.TypeSymlink: erofs.TypeSymlink, tar.TypeFifo: erofs.TypeFifo,
	tar.TypeChar: erofs.TypeChar, tar.TypeBlock: erofs.TypeBlock,
}

func (t *tree) newNode(h *tar.Header) (*node, error) {
	kind, ok := nodeTypes[h.Typeflag]
	switch {
	case !ok:
		return nil, invalid("the unknown type %q", h.Typeflag)
	case !id(h.Uid) || !id(h.Gid):
		return nil, invalid("the owner %d:%d", h.Uid, h.Gid)
	case kind == erofs.TypeSymlink && (h.Linkname == "" || len(h.Linkname) >= maxPath):
		return nil, invalid("a symbolic link to a path of %d bytes", len(h.Linkname))
	case !device(h):
		return nil, invalid("the device %d:%d", h.Devmajor, h.Devminor)
	}
	n := &node{Inode: erofs.Inode{
		Mode: kind | uint16(h.Mode&0o7777), UID: uint32(h.Uid), GID: uint32(h.Gid),
		Mtime: h.ModTime.Unix(), MtimeNsec: uint32(h.ModTime.Nanosecond()), // #nosec G115 -- below 1e9
	}}
	switch kind {
	case erofs.TypeFile:
		n.Size = h.Size
		if t.files += h.Size; h.Size < 0 || t.files > t.limits.Unpacked {
			return nil, invalid("files of more than %d bytes", t.limits.Unpacked)
		}
	case erofs.TypeDir:
		n.names = map[string]dirent{}
	case erofs.TypeSymlink:
		n.Target = h.Linkname
	case erofs.TypeChar, erofs.TypeBlock:
		n.Major, n.Minor = uint32(h.Devmajor), uint32(h.Devminor) // #nosec G115 -- device checked them
	}
	return n, t.setXattrs(n, h.PAXRecords)
}

// id reports whether a number is a user or a group. The last number means "no change" to chown.
func id(n int) bool { return n >= 0 && n < math.MaxUint32 }

func device(h *tar.Header) bool {
	if h.Typeflag != tar.TypeChar && h.Typeflag != tar.TypeBlock {
		return true
	}
	return h.Devmajor >= 0 && h.Devmajor < 1<<12 && h.Devminor >= 0 && h.Devminor < 1<<20
}

const paxXattr = "SCHILY.xattr."

// setXattrs keeps the attributes in namespaces of Linux. Those of overlayfs are left out, because the guest mounts
// the root below an overlay, and would obey them.
func (t *tree) setXattrs(n *node, records map[string]string) error {
	for k, v := range records {
		attr, ok := strings.CutPrefix(k, paxXattr)
		if !ok || !erofs.HasXattr(attr) || strings.HasPrefix(attr, "trusted.overlay.") {
			continue
		}
		if n.Xattrs == nil {
			n.Xattrs = map[string]string{}
		}
		n.Xattrs[attr] = v
		if err := t.grow(len(attr) + len(v)); err != nil {
			return err
		}
	}
	return nil
}
