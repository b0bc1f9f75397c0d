package netpolicy

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
)

// prefixTable finds all prefixes that contain an address, the longest first. Two prefixes are
// either disjoint or one contains the other. So in the list sorted by first address, the last
// prefix that begins at or before an address belongs to the same nest as all prefixes that contain
// the address.
type prefixTable struct {
	nodes []prefixNode
}

type prefixNode struct {
	prefix netip.Prefix
	parent int   // the next wider prefix around it, or -1
	values []int // values added for it, in order
}

// prefixBuilder collects prefixes for a table.
type prefixBuilder struct {
	values map[netip.Prefix][]int
}

// add adds a value for a masked prefix.
func (b *prefixBuilder) add(p netip.Prefix, value int) {
	if b.values == nil {
		b.values = map[netip.Prefix][]int{}
	}
	b.values[p] = append(b.values[p], value)
}

func (b *prefixBuilder) build() prefixTable {
	nodes := make([]prefixNode, 0, len(b.values))
	for p, v := range b.values {
		nodes = append(nodes, prefixNode{prefix: p, parent: -1, values: v})
	}
	slices.SortFunc(nodes, func(x, y prefixNode) int {
		return cmp.Or(x.prefix.Addr().Compare(y.prefix.Addr()), cmp.Compare(x.prefix.Bits(), y.prefix.Bits()))
	})
	around := -1
	for i := range nodes {
		for around >= 0 && !nodes[around].prefix.Contains(nodes[i].prefix.Addr()) {
			around = nodes[around].parent
		}
		nodes[i].parent, around = around, i
	}
	return prefixTable{nodes}
}

// walk calls visit with the values of each prefix that contains a, until visit returns true.
func (t *prefixTable) walk(a netip.Addr, visit func(values []int) bool) {
	i := sort.Search(len(t.nodes), func(i int) bool { return t.nodes[i].prefix.Addr().Compare(a) > 0 }) - 1
	for ; i >= 0; i = t.nodes[i].parent {
		if t.nodes[i].prefix.Contains(a) && visit(t.nodes[i].values) {
			return
		}
	}
}

// find returns the first value of the longest prefix that contains a.
func (t *prefixTable) find(a netip.Addr) (value int, ok bool) {
	t.walk(a, func(values []int) bool {
		value, ok = values[0], true
		return true
	})
	return value, ok
}
