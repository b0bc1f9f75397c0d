package ociimage

import (
	"errors"
	"path"
	"strings"

	"github.com/forkd/forkd/internal/images/erofs"
)

// tree is the merge of layers in memory. Paths are resolved in it, so links of an image lead to other places of the
// same image only.
type tree struct {
	root   *node
	limits Limits
	layer  int   // being applied, from 1
	nodes  int   // made, including replaced ones
	meta   int64 // bytes of names, targets and attributes
	files  int64 // bytes of files of all layers
	work   int64 // steps, to bound the time of deliberately slow trees
}

// node is a file, a folder or another object. Hard links share a node.
type node struct {
	erofs.Inode
	names   map[string]dirent // of a folder
	layer   int               // with the content of a file; 0 if data has it
	entry   int               // number of the content's entry in the layer
	data    []byte            // content that is needed before the image is written
	visited bool
}

// dirent is a name in a folder.
type dirent struct {
	node  *node
	layer int // that made the name, or repeated it
}

var errAbsent = errors.New("no such folder")

func newTree(limits Limits) *tree {
	t := &tree{limits: limits}
	t.root = newFolder()
	return t
}

func newFolder() *node {
	return &node{Inode: erofs.Inode{Mode: erofs.TypeDir | 0o755}, names: map[string]dirent{}}
}

// split returns the clean parts of a path. The parts ".." at the beginning disappear.
func split(p string) []string {
	p = path.Clean("/" + p)[1:]
	if p == "" {
		return nil
	}
	return strings.Split(p, "/")
}

// folder finds a folder, and follows links in the tree. It makes missing folders if create is set, and otherwise
// returns errAbsent.
func (t *tree) folder(parts []string, create bool) (*node, error) {
	stack := []*node{t.root}
	links := 0
	for len(parts) > 0 {
		part := parts[0]
		parts = parts[1:]
		if err := t.step(1); err != nil {
			return nil, err
		}
		here := stack[len(stack)-1]
		switch part {
		case "", ".":
			continue
		case "..":
			stack = stack[:max(1, len(stack)-1)]
			continue
		}
		next, err := t.below(here, part, create)
		if err != nil {
			return nil, err
		}
		switch next.Type() {
		case erofs.TypeDir:
			if stack = append(stack, next); len(stack) > maxDepth {
				return nil, invalid("more than %d folders below each other", maxDepth)
			}
		case erofs.TypeSymlink:
			if links++; links > maxLinks {
				return nil, invalid("more than %d symbolic links in a path", maxLinks)
			}
			if strings.HasPrefix(next.Target, "/") {
				stack = stack[:1]
			}
			parts = append(strings.Split(next.Target, "/"), parts...)
		default:
			if !create {
				return nil, errAbsent
			}
			return nil, invalid("%.100q is not a folder", part)
		}
	}
	return stack[len(stack)-1], nil
}

func (t *tree) below(here *node, part string, create bool) (*node, error) {
	if n, ok := here.names[part]; ok {
		return n.node, nil
	}
	if !create {
		return nil, errAbsent
	}
	n := newFolder()
	return n, t.put(here, part, n)
}

// put gives a node a name, in place of another one.
func (t *tree) put(dir *node, base string, n *node) error {
	if len(base) > 255 {
		return invalid("a name of %d bytes", len(base))
	}
	if t.nodes++; t.nodes > t.limits.Entries {
		return invalid("more than %d files and folders", t.limits.Entries)
	}
	if err := t.grow(len(base) + len(n.Target)); err != nil {
		return err
	}
	dir.names[base] = dirent{n, t.layer}
	return nil
}

func (t *tree) grow(bytes int) error {
	if t.meta += int64(bytes); t.meta > t.limits.Metadata {
		return invalid("more than %d bytes of names and attributes", t.limits.Metadata)
	}
	return nil
}

func (t *tree) step(n int) error {
	if t.work += int64(n); t.work > maxWork {
		return invalid("its layers need more than %d steps to merge", maxWork)
	}
	return nil
}

// hide removes everything of lower layers in a folder.
func (t *tree) hide(dir *node) error {
	if err := t.step(len(dir.names) + 1); err != nil {
		return err
	}
	for base := range dir.names {
		if err := t.hideName(dir, base); err != nil {
			return err
		}
	}
	return nil
}

// hideName removes a name of a lower layer. A folder stays if this layer has something in it.
func (t *tree) hideName(dir *node, base string) error {
	n, ok := dir.names[base]
	if !ok {
		return nil
	}
	if n.node.Type() == erofs.TypeDir {
		if err := t.hide(n.node); err != nil {
			return err
		}
	}
	if n.layer < t.layer && len(n.node.names) == 0 {
		delete(dir.names, base)
	}
	return nil
}

// find returns an object by its path. The last part is not followed.
func (t *tree) find(p string) (*node, error) {
	parts := split(p)
	if len(parts) == 0 {
		return t.root, nil
	}
	dir, err := t.folder(parts[:len(parts)-1], false)
	if err != nil {
		return nil, err
	}
	n, ok := dir.names[parts[len(parts)-1]]
	if !ok {
		return nil, errAbsent
	}
	return n.node, nil
}

// finish turns the tree into inodes. It returns the files that have content, by layer and entry.
func (t *tree) finish(layers int) []map[int]*node {
	all := make([]map[int]*node, layers+1)
	for i := range all {
		all[i] = map[int]*node{}
	}
	t.root.finish(all)
	return all
}

func (n *node) finish(all []map[int]*node) {
	if n.visited {
		return
	}
	n.visited = true
	if n.Type() == erofs.TypeFile && n.layer > 0 && n.data == nil && n.Size > 0 {
		all[n.layer][n.entry] = n
	}
	if n.Type() != erofs.TypeDir {
		return
	}
	n.Children = make(map[string]*erofs.Inode, len(n.names))
	for base, c := range n.names {
		c.node.finish(all)
		n.Children[base] = &c.node.Inode
	}
}
