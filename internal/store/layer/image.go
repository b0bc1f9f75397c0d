package layer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/forkd/forkd/internal/store/extent"
)

// Image is the image of a chain of layers. It is safe for concurrent use.
type Image struct {
	chain   []*Layer
	extents []extent.Extent // without zero extents
}

// Assemble flattens a chain, base first, into the fewest extents. The cost of a fork depends on their number, not
// on the chain's length.
func Assemble(chain []*Layer) (*Image, error) {
	if err := checkChain(chain); err != nil {
		return nil, err
	}
	seen := slices.DeleteFunc(flatten(chain), extent.Extent.Zero)
	return &Image{chain: slices.Clone(chain), extents: slices.Clip(seen)}, nil
}

// Size returns the size of the image in bytes.
func (m *Image) Size() int64 { return m.chain[0].Size }

// Kind returns the kind of the image.
func (m *Image) Kind() Kind { return m.chain[0].Kind }

// Layers returns the chain, base first. The caller must not modify it.
func (m *Image) Layers() []*Layer { return m.chain }

// Extents returns the image's content in ascending order. Gaps are zeros. The caller must not modify the list.
func (m *Image) Extents() []extent.Extent { return m.extents }

// View returns the image's view, the parent of a layer above it.
func (m *Image) View() ID { return m.chain[len(m.chain)-1].View }

// checkChain rejects layers that were not written on top of one another. Their result would look like an image,
// but be garbage.
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

// flatten returns the visible extents of the layers: data, zeros, and gaps where no layer has a run.
func flatten(layers []*Layer) (seen []extent.Extent) {
	for _, l := range layers {
		seen = extent.Over(seen, l.Extents())
	}
	return seen
}

// ReadAt reads the image through the whole chain.
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

// owner returns the ID of the file's layer.
func (m *Image) owner(f *os.File) ID {
	i := slices.IndexFunc(m.chain, func(l *Layer) bool { return l.file == f })
	return m.chain[i].ID
}
