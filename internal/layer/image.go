package layer

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
)

// Segment is a range of an image whose content is in one layer's file.
type Segment struct {
	Layer          int   // position in the chain, 0 is the base
	Offset, Length int64 // in the image, bytes
	FileOffset     int64 // in the layer's file
	zero           bool  // only while a chain is flattened
}

func (s Segment) end() int64 { return s.Offset + s.Length }

// cut is the part of the segment from offset to end.
func (s Segment) cut(offset, end int64) Segment {
	if !s.zero {
		s.FileOffset += offset - s.Offset
	}
	s.Offset, s.Length = offset, end-offset
	return s
}

// Image is a chain of layers seen as one. It is safe for concurrent use.
type Image struct {
	chain    []*Layer
	segments []Segment
}

// Assemble flattens a chain, base first, into the fewest segments. Their number
// decides what a fork costs, not the chain's length.
func Assemble(chain []*Layer) (*Image, error) {
	if err := checkChain(chain); err != nil {
		return nil, err
	}
	segments := slices.DeleteFunc(flatten(chain), func(s Segment) bool { return s.zero })
	return &Image{chain: slices.Clone(chain), segments: slices.Clip(segments)}, nil
}

// Size of the image in bytes.
func (m *Image) Size() int64 { return m.chain[0].Size }

// Kind of the image.
func (m *Image) Kind() Kind { return m.chain[0].Kind }

// Layers is the chain, base first. It must not be changed.
func (m *Image) Layers() []*Layer { return m.chain }

// Segments are rising and do not overlap; what none covers is zero. They must
// not be changed.
func (m *Image) Segments() []Segment { return m.segments }

// View names what the image shows: the parent of a layer that lies over it.
func (m *Image) View() ID { return m.chain[len(m.chain)-1].View }

// checkChain refuses layers that were not written on one another: the result
// would look like an image and be none.
func checkChain(chain []*Layer) error {
	if len(chain) == 0 {
		return fmt.Errorf("%w: there is none", ErrChain)
	}
	if base := chain[0]; !base.Parent.IsZero() {
		return fmt.Errorf("%w: layer %s is a diff over %s, want a base", ErrChain, base.ID, base.Parent)
	}
	for i, l := range chain[1:] {
		switch below := chain[i]; {
		case l.Parent != below.View:
			return fmt.Errorf("%w: layer %s lies over %s, not over %s with view %s", ErrChain, l.ID, l.Parent, below.ID, below.View)
		case l.Size != below.Size || l.Kind != below.Kind:
			return fmt.Errorf("%w: layer %s is of %d bytes of %s, layer %s below it of %d bytes of %s",
				ErrChain, l.ID, l.Size, l.Kind, below.ID, below.Size, below.Kind)
		}
	}
	return nil
}

// flatten is what one sees through the layers: data, zeros, and nothing where
// none has a run.
func flatten(layers []*Layer) []Segment {
	var seen []Segment
	for i, l := range layers {
		seen = overlay(seen, l.runs, i)
	}
	return seen
}

// overlay puts a layer's runs over what is below. It uses up lower.
func overlay(lower []Segment, runs []Run, layer int) []Segment {
	out := make([]Segment, 0, len(lower)+2*len(runs))
	for _, r := range runs {
		for len(lower) > 0 && lower[0].end() <= r.Offset {
			out, lower = push(out, lower[0]), lower[1:]
		}
		if len(lower) > 0 && lower[0].Offset < r.Offset {
			out = push(out, lower[0].cut(lower[0].Offset, r.Offset))
		}
		out = push(out, Segment{Layer: layer, Offset: r.Offset, Length: r.Length, FileOffset: r.FileOffset, zero: r.Zero})
		for len(lower) > 0 && lower[0].end() <= r.end() {
			lower = lower[1:]
		}
		if len(lower) > 0 && lower[0].Offset < r.end() {
			lower[0] = lower[0].cut(r.end(), lower[0].end())
		}
	}
	for _, s := range lower {
		out = push(out, s)
	}
	return out
}

// push appends a segment, or lengthens the last one by it.
func push(out []Segment, s Segment) []Segment {
	if len(out) > 0 {
		last := &out[len(out)-1]
		same := last.zero && s.zero || last.zero == s.zero && last.Layer == s.Layer && last.FileOffset+last.Length == s.FileOffset
		if same && last.end() == s.Offset {
			last.Length += s.Length
			return out
		}
	}
	return append(out, s)
}

// ReadAt reads the image as it is seen through the whole chain.
func (m *Image) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("read image: negative offset")
	}
	want := int64(len(p))
	have := min(want, max(m.Size()-off, 0))
	n, err := m.fill(p[:have], off)
	if err == nil && int64(n) < want {
		err = io.EOF
	}
	return n, err
}

func (m *Image) fill(p []byte, off int64) (n int, err error) {
	first := sort.Search(len(m.segments), func(i int) bool { return m.segments[i].end() > off })
	for _, s := range m.segments[first:] {
		if n == len(p) {
			return n, nil
		}
		at := off + int64(n)
		if gap := min(int64(len(p)-n), s.Offset-at); gap > 0 {
			clear(p[n : n+int(gap)])
			n += int(gap)
			at += gap
		}
		part := p[n : n+int(min(int64(len(p)-n), s.end()-at))]
		got, err := m.chain[s.Layer].file.ReadAt(part, s.FileOffset+at-s.Offset)
		n += got
		if got < len(part) {
			if err == nil || errors.Is(err, io.EOF) {
				err = damaged("it is cut short")
			}
			return n, fmt.Errorf("read layer %s: %w", m.chain[s.Layer].ID, err)
		}
	}
	clear(p[n:])
	return len(p), nil
}
