package snapshot

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/layer"
)

const (
	pages    = testMemory / layer.BlockSize
	treeSeed = "FORKD_TREE_SEED" // runs only this seed
)

// pagesOf is the expected content of an image: pages by number, each filled with one byte.
type pagesOf map[int64]byte

// child is a simulated VM: it maps a snapshot and writes.
type child struct {
	tag   string
	files *Files // open as long as it runs, even if the snapshot is deleted
	own   pagesOf
}

// tree is a store with its expected content.
type tree struct {
	t        *testing.T
	r        *rand.Rand
	s        *Store
	next     int
	models   map[string]pagesOf
	children []*child
	busy     []int64        // pages that children write, so that their writes overlap
	zeroed   map[int64]bool // other pages that were zeroed
}

// limits are low, so that chains are often merged.
var limits = Limits{Layers: 5, Extents: 60, Runs: 12}

func TestRandomTreesAgainstAModel(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4}
	if text := os.Getenv(treeSeed); text != "" {
		var seed uint64
		_, err := fmt.Sscan(text, &seed)
		must(t, err)
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Logf("again with %s=%d", treeSeed, seed)
			m := &tree{t: t, r: rand.New(rand.NewPCG(seed, 3)), s: open(t), models: map[string]pagesOf{}, zeroed: map[int64]bool{}}
			for range 120 {
				m.busy = append(m.busy, m.r.Int64N(pages))
			}
			for at := m.r.Int64N(pages / 2); len(m.busy) < 220; at++ { // including some neighbours
				m.busy = append(m.busy, at)
			}
			slices.Sort(m.busy)
			m.busy = slices.Compact(m.busy)
			defer m.end()
			m.root()
			for range 70 {
				m.step()
			}
			for _, tag := range slices.Sorted(maps.Keys(m.models)) {
				m.check(tag)
				must(t, m.s.Hash(t.Context(), tag, nil))
				if r, err := m.s.Verify(t.Context(), tag); err != nil || len(r.Damaged) > 0 {
					t.Errorf("verify %s: %+v, %v", tag, r, err)
				}
			}
			m.checkStore()
		})
	}
}

func (m *tree) step() {
	tags := slices.Sorted(maps.Keys(m.models))
	switch n := m.r.IntN(20); {
	case len(tags) == 0:
		m.root()
	case n < 4 && len(m.children) < 8:
		m.fork(tags[m.r.IntN(len(tags))])
	case n < 9 && len(m.children) > 0:
		m.write(m.children[m.r.IntN(len(m.children))])
	case n < 14 && len(m.children) > 0:
		m.branch(m.children[m.r.IntN(len(m.children))], m.r.IntN(6) == 0)
	case n < 15:
		m.compact(tags[m.r.IntN(len(tags))])
	case n < 17 && len(tags) > 2:
		tag := tags[m.r.IntN(len(tags))]
		must(m.t, m.s.Delete(tag))
		delete(m.models, tag)
	case n < 18 && len(m.children) > 0:
		i := m.r.IntN(len(m.children))
		m.children[i].files.Close()
		m.children = slices.Delete(m.children, i, i+1)
	case n < 19:
		_, err := m.s.layers.GC(false)
		must(m.t, err)
	default:
		m.glance(tags[m.r.IntN(len(tags))])
	}
}

func (m *tree) tag() string {
	m.next++
	return fmt.Sprint("s", m.next)
}

// commit creates a snapshot from a chain in the draft.
func (m *tree) commit(d *Draft, memory Chain, tag string, model pagesOf) {
	rest(m.t, d)
	must(m.t, d.Commit(manifest(memory)))
	m.models[tag] = model
	m.glance(tag)
}

func (m *tree) draft() (*Draft, string) {
	tag := m.tag()
	d, err := m.s.Create(tag)
	must(m.t, err)
	return d, tag
}

func (m *tree) root() {
	d, tag := m.draft()
	defer d.Discard()
	model, data := pagesOf{}, map[int64]string{}
	for _, p := range m.busy {
		if m.r.IntN(2) == 0 {
			model[p] = byte(1 + m.r.IntN(255))
			data[p*layer.BlockSize] = string(bytes.Repeat([]byte{model[p]}, layer.BlockSize))
		}
	}
	m.commit(d, base(m.t, d, data), tag, model)
}

func (m *tree) fork(tag string) {
	files, err := m.s.Open(tag)
	must(m.t, err)
	m.children = append(m.children, &child{tag: tag, files: files, own: pagesOf{}})
}

// write fills some pages, also with zeros or with their present content.
func (m *tree) write(c *child) {
	for range 1 + m.r.IntN(40) {
		c.own[m.busy[m.r.IntN(len(m.busy))]] = byte(m.r.IntN(4))
	}
	if m.r.IntN(4) == 0 { // a long stretch of zeros
		from := m.r.Int64N(pages - 64)
		for p := from; p < from+40; p++ {
			if _, busy := slices.BinarySearch(m.busy, p); !busy && m.r.IntN(2) == 0 {
				continue
			}
			c.own[p], m.zeroed[p] = 0, true
		}
	}
}

// branch creates a snapshot of all data written by a child since its fork.
func (m *tree) branch(c *child, full bool) {
	scratch, err := m.s.layers.Scratch()
	must(m.t, err)
	defer scratch.Close()
	must(m.t, scratch.Truncate(testMemory))
	var own []extent.Extent
	for _, p := range slices.Sorted(maps.Keys(c.own)) {
		_, err := scratch.WriteAt(bytes.Repeat([]byte{c.own[p]}, layer.BlockSize), p*layer.BlockSize)
		must(m.t, err)
		at := p * layer.BlockSize
		own = extent.Append(own, extent.Extent{File: scratch, FileOffset: at, Offset: at, Length: layer.BlockSize})
	}
	d, tag := m.draft()
	defer d.Discard()
	k := d.Stack(layer.Memory, testMemory, limits, c.files.Memory.Layers()...)
	must(m.t, k.Diff(m.t.Context(), own))
	if full {
		must(m.t, k.Flatten(m.t.Context(), nil))
	}
	must(m.t, k.Bound(m.t.Context()))
	if image, err := layer.Assemble(k.Layers()); err != nil || len(k.Layers()) > limits.Layers || len(k.Layers()) > 2 && len(image.Extents()) > limits.Extents {
		m.t.Errorf("%d layers in %d extents, %v", len(k.Layers()), len(image.Extents()), err)
	}
	chain := k.Chain()
	chain.Own = chain.OwnSince(c.files.Manifest.Memory)
	model := maps.Clone(m.modelOf(c))
	maps.Copy(model, c.own)
	m.commit(d, chain, tag, model)
}

// modelOf returns the content of a child's snapshot, even if the snapshot is deleted.
func (m *tree) modelOf(c *child) pagesOf {
	if model, ok := m.models[c.tag]; ok {
		return model
	}
	model := pagesOf{}
	page := make([]byte, layer.BlockSize)
	for p := range int64(pages) {
		_, err := c.files.Memory.ReadAt(page, p*layer.BlockSize)
		must(m.t, err)
		if page[0] != 0 {
			model[p] = page[0]
		}
	}
	return model
}

func (m *tree) compact(from string) {
	files, err := m.s.Open(from)
	must(m.t, err)
	defer files.Close()
	d, tag := m.draft()
	defer d.Discard()
	k := d.Stack(layer.Memory, testMemory, limits, files.Memory.Layers()...)
	must(m.t, k.Flatten(m.t.Context(), nil))
	if c := k.Chain(); len(c.Layers) != 1 || c.Own != 1 {
		m.t.Errorf("compacted to %+v", c)
	}
	m.commit(d, k.Chain(), tag, maps.Clone(m.models[from]))
}

// glance reads all pages that were ever written.
func (m *tree) glance(tag string) {
	m.t.Helper()
	files, err := m.s.Open(tag)
	must(m.t, err)
	defer files.Close()
	page := make([]byte, layer.BlockSize)
	for _, p := range slices.Concat(m.busy, slices.Collect(maps.Keys(m.zeroed))) {
		_, err := files.Memory.ReadAt(page, p*layer.BlockSize)
		must(m.t, err)
		if want := m.models[tag][p]; page[0] != want || page[layer.BlockSize-1] != want {
			m.t.Fatalf("page %d of %s is %d, want %d", p, tag, page[0], want)
		}
	}
}

// check reads a whole snapshot.
func (m *tree) check(tag string) {
	m.t.Helper()
	files, err := m.s.Open(tag)
	if err != nil {
		m.t.Fatal(err)
	}
	defer files.Close()
	chunk := make([]byte, 1<<20)
	for at := int64(0); at < testMemory; at += int64(len(chunk)) {
		_, err := files.Memory.ReadAt(chunk, at)
		must(m.t, err)
		for i := 0; i < len(chunk); i += layer.BlockSize {
			p := (at + int64(i)) / layer.BlockSize
			page, want := chunk[i:i+layer.BlockSize], m.models[tag][p]
			if page[0] != want || page[layer.BlockSize-1] != want {
				m.t.Fatalf("page %d of %s is %d, want %d", p, tag, page[0], want)
			}
		}
	}
}

// checkStore checks that a collection keeps exactly the layers of snapshots and children.
func (m *tree) checkStore() {
	for _, c := range m.children {
		c.files.Close()
	}
	m.children = nil
	_, err := m.s.layers.GC(false)
	must(m.t, err)
	needed := map[layer.ID]bool{}
	entries, err := m.s.List()
	must(m.t, err)
	if len(entries) != len(m.models) {
		m.t.Errorf("%d snapshots, want %d", len(entries), len(m.models))
	}
	for _, e := range entries {
		must(m.t, e.Err)
		for _, id := range e.Manifest.LayerIDs() {
			needed[id] = true
		}
	}
	for _, id := range layersOf(m.t, m.s) {
		if !needed[id] {
			m.t.Errorf("layer %s is nobody's", id)
		}
	}
}

func (m *tree) end() {
	for _, c := range m.children {
		c.files.Close()
	}
}
