package layer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/forkd/forkd/internal/store/extent"
)

// Image is a chain of layers seen as one. It is safe for concurrent use.
type Image struct {
	chain   []*Layer
	extents []extent.Extent // none of zeros
}

// Assemble flattens a chain, base first, into the fewest extents. Their number
// decides what a fork costs, not the chain's length.
func Assemble(chain []*Layer) (*Image, error) {
	if err := checkChain(chain); err != nil {
		return nil, err
	}
	seen := slices.DeleteFunc(flatten(chain), extent.Extent.Zero)
	return &Image{chain: slices.Clone(chain), extents: slices.Clip(seen)}, nil
}

// Size of the image in bytes.
func (m *Image) Size() int64 { return m.chain[0].Size }

// Kind of the image.
func (m *Image) Kind() Kind { return m.chain[0].Kind }

// Layers is the chain, base first. It must not be changed.
func (m *Image) Layers() []*Layer { return m.chain }

// Extents are the image's content: rising, and what none covers is zero. They must
// not be changed.
func (m *Image) Extents() []extent.Extent { return m.extents }

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
			return fmt.Errorf("%w: layer %s lies over %s, not over %s with view %s",
				ErrChain, l.ID, l.Parent, below.ID, below.View)
		case l.Size != below.Size || l.Kind != below.Kind:
			return fmt.Errorf("%w: layer %s is of %d bytes of %s, layer %s below it of %d bytes of %s",
				ErrChain, l.ID, l.Size, l.Kind, below.ID, below.Size, below.Kind)
		}
	}
	return nil
}

// flatten is what one sees through the layers: data, zeros, and nothing where
// none has a run.
func flatten(layers []*Layer) (seen []extent.Extent) {
	for _, l := range layers {
		seen = extent.Over(seen, l.Extents())
	}
	return seen
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
	for e := range extent.Filled(m.extents, off, off+int64(len(p))) {
		part := p[n : n+int(e.Length)]
		if e.Zero() {
			clear(part)
			n += len(part)
			continue
		}
		got, err := e.File.ReadAt(part, e.FileOffset)
		n += got
		if got < len(part) {
			if err == nil || errors.Is(err, io.EOF) {
				err = damaged("it is cut short")
			}
			return n, fmt.Errorf("read layer %s: %w", m.owner(e.File), err)
		}
	}
	return n, nil
}

// owner is the layer that a file is of.
func (m *Image) owner(f *os.File) ID {
	i := slices.IndexFunc(m.chain, func(l *Layer) bool { return l.file == f })
	return m.chain[i].ID
}
