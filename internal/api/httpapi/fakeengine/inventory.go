package fakeengine

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
)

// inventory lists the fake disk. The time of a file is a hash of its content, so equal files are
// equal in all guests.
type inventory struct {
	agentv1connect.UnimplementedInventoryHandler

	d *disk
}

// List implements agentv1connect.InventoryHandler.
func (i inventory) List(_ context.Context, _ *connect.Request[agentv1.ListRequest],
	to *connect.ServerStream[agentv1.InventoryPart]) error {
	i.d.mu.Lock()
	part := &agentv1.InventoryPart{End: &agentv1.InventoryEnd{}}
	byWalk := func(a, b string) int { // "/" is the lowest byte
		return strings.Compare(strings.ReplaceAll(a, "/", "\x01"), strings.ReplaceAll(b, "/", "\x01"))
	}
	for _, name := range slices.SortedFunc(maps.Keys(i.d.files), byWalk) {
		if name != "/" {
			part.Files = append(part.Files, i.d.files[name].inventory(name))
		}
	}
	i.d.mu.Unlock()
	return to.Send(part)
}

func (n *node) inventory(name string) *agentv1.InventoryFile {
	h := fnv.New32()
	h.Write(n.data)
	f := &agentv1.InventoryFile{Path: []byte(name), Mode: 0o100644, Size: int64(len(n.data)), MtimeNs: int64(h.Sum32())}
	switch {
	case n.dir:
		f.Mode = 0o40755
	case n.link != "":
		f.Mode, f.Target = 0o120777, []byte(n.link)
	}
	return f
}

// remove is rm -f, or rmdir.
func (d *disk) remove(p *proc, dirs bool) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range p.args {
		n := d.files[name]
		switch {
		case name == "-f", n == nil && !dirs:
			continue
		case n == nil, n.dir != dirs:
			fmt.Fprintf(p.stderr, "%s: not of that kind\n", name)
			return 1
		}
		for other := range d.files {
			if strings.HasPrefix(other, name+"/") {
				fmt.Fprintf(p.stderr, "%s: Directory not empty\n", name)
				return 1
			}
		}
		delete(d.files, name)
	}
	return 0
}
