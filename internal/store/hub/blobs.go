package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// maxTables limits the bytes of the tables that an Offers value remembers.
const maxTables = 64 << 20

// Offers presents snapshots of the store as artifacts, without packed copies on the disk. It remembers the tables of
// layers, which are small, and packs the frames of a range when they are read. The zero Offers is ready. It is safe for
// concurrent use.
type Offers struct {
	turn  sync.Mutex // held while content is packed for the first time
	mu    sync.Mutex // guards the fields below
	known map[string]offered
	order []string // of known, the oldest first
	bytes int
}

// offered is what an Offers value remembers of a file or layer.
type offered struct {
	table  *Table
	coded  []byte // the table's blob
	frames Descriptor
}

// Blobs are the manifest and the blobs of one snapshot. Close releases its layers.
type Blobs struct {
	ctx      context.Context //nolint:containedctx // of one request
	offers   *Offers
	export   Export
	manifest []byte
	small    map[string][]byte // by digest: the configuration and the tables
	parts    map[string]part   // by digest of the frames
	close    func()
}

// part is the content behind a blob of frames.
type part struct {
	offered
	key string
	r   io.ReaderAt
}

// Open returns the blobs of a snapshot. The first call for some content reads all of it. Content with one of the
// export's secrets is refused. Blobs.Close calls release, which may be nil.
func (s *Offers) Open(ctx context.Context, e Export, release func()) (_ *Blobs, err error) {
	b := &Blobs{ctx: ctx, offers: s, export: e, small: map[string][]byte{}, parts: map[string]part{}}
	var handles []*store.Handle
	b.close = func() {
		for _, h := range handles {
			h.Close()
		}
		if release != nil {
			release()
		}
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	m := travelling(e.Files.Manifest)
	config, err := m.Encode()
	if err != nil {
		return nil, err
	}
	a := newArtifact(config, m)
	b.small[a.Config.Digest] = config
	p, err := newPacker(e.Secrets)
	if err != nil {
		return nil, err
	}
	defer p.close()
	for _, f := range stateFirst(m) {
		key := "file/" + e.Files.ContentHash + "/" + f.Name
		if err := b.add(ctx, p, a, f.Name, key, e.Files.File(f.Name), Parts{Body: f.Bytes}, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	for _, id := range m.LayerIDs() {
		h, err := e.Layers.Get(id)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", id, err)
		}
		handles = append(handles, h)
		name := layerPrefix + id.String()
		if err := b.add(ctx, p, a, name, name, h.File(), partsOf(h), e.sound(id)); err != nil {
			return nil, fmt.Errorf("layer %s: %w", id, err)
		}
	}
	b.manifest, err = a.encode()
	return b, err
}

// stateFirst returns the files of a snapshot in the order of their blobs.
func stateFirst(m *snapshot.Manifest) []snapshot.File {
	files := slices.Clone(m.Files)
	slices.SortStableFunc(files, func(a, b snapshot.File) int {
		switch m.State.File {
		case a.Name:
			return -1
		case b.Name:
			return 1
		}
		return 0
	})
	return files
}

// add adds a file or layer, from memory or by reading it.
func (b *Blobs) add(ctx context.Context, p *packer, a *Artifact, name, key string, r io.ReaderAt, of Parts,
	wrong func(*Table) error) error {
	one, there := b.offers.get(key)
	if !there {
		var err error
		if one, err = b.offers.pack(ctx, p, key, r, of, b.export.Pause, wrong); err != nil {
			return err
		}
	}
	table := describe(TableType, one.coded)
	a.add(name, one.table.Content(), table, one.frames)
	b.small[table.Digest] = one.coded
	b.parts[one.frames.Digest] = part{one, key, r}
	return nil
}

// get returns the table of some content if it is known.
func (s *Offers) get(key string) (offered, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, there := s.known[key]
	return one, there
}

// pack reads some content for its table and digest. The frames are not kept.
func (s *Offers) pack(ctx context.Context, p *packer, key string, r io.ReaderAt, of Parts,
	pause func(context.Context) error, wrong func(*Table) error) (offered, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if one, there := s.get(key); there { // packed by the one before
		return one, nil
	}
	if ctx.Err() != nil {
		return offered{}, context.Cause(ctx)
	}
	h := sha256.New()
	t, err := p.pack(ctx, r, of, h, func(int64) error {
		if pause == nil {
			return nil
		}
		return pause(ctx)
	})
	if err == nil && wrong != nil {
		err = wrong(t)
	}
	if err != nil {
		return offered{}, err
	}
	t.locate()
	one := offered{table: t, coded: t.Encode(), frames: Descriptor{MediaType: FramesType,
		Digest: "sha256:" + hex.EncodeToString(h.Sum(nil)), Size: t.BlobBytes()}}
	s.put(key, one)
	return one, nil
}

func (s *Offers) put(key string, one offered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]offered{}
	}
	s.dropLocked(key)
	s.known[key], s.order = one, append(s.order, key)
	s.bytes += one.cost()
	for s.bytes > maxTables && len(s.order) > 1 {
		s.dropLocked(s.order[0])
	}
}

func (s *Offers) dropLocked(key string) {
	if one, there := s.known[key]; there {
		s.bytes -= one.cost()
		delete(s.known, key)
		s.order = slices.DeleteFunc(s.order, func(k string) bool { return k == key })
	}
}

// forget drops content that has changed, for example a layer whose ID was used again.
func (s *Offers) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(key)
}

// cost is the memory of an entry: the encoded table, its frames and their places.
func (o offered) cost() int { return 3*len(o.coded) + 512 }

// Manifest returns the artifact's manifest.
func (b *Blobs) Manifest() []byte { return b.manifest }

// Blob returns a blob by its digest, or nil. The reader is valid until Close.
func (b *Blobs) Blob(digest string) io.ReadSeekCloser {
	if small, there := b.small[digest]; there {
		return nopCloser{bytes.NewReader(small)}
	}
	if p, there := b.parts[digest]; there {
		return &frames{blobs: b, part: p, chunk: -1}
	}
	return nil
}

// Close releases the snapshot.
func (b *Blobs) Close() { b.close() }

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

// frames is a blob of frames, which are packed as they are read.
type frames struct {
	blobs   *Blobs
	part    part
	at      int64
	packer  *packer
	chunk   int    // of the frame in memory; -1: none
	packed  []byte // that frame
	content []byte
}

// Seek implements io.Seeker.
func (f *frames) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.part.frames.Size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning of a blob")
	}
	f.at = offset
	return offset, nil
}

// Read implements io.Reader. It compares each frame with the table, so that a damaged layer is not sent.
func (f *frames) Read(p []byte) (int, error) {
	switch {
	case f.at >= f.part.frames.Size:
		return 0, io.EOF
	case f.at < int64(len(framesHead)):
		n := copy(p, framesHead[f.at:])
		f.at += int64(n)
		return n, nil
	}
	t := f.part.table
	// The last frame that begins here or before; chunks of zeros have no frame.
	i := sort.Search(len(t.starts), func(i int) bool { return t.starts[i] > f.at }) - 1
	if i != f.chunk {
		if err := f.load(i); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.packed[f.at-t.starts[i]:])
	f.at += int64(n)
	return n, nil
}

func (f *frames) load(i int) error {
	ctx, t := f.blobs.ctx, f.part.table
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if pause := f.blobs.export.Pause; pause != nil {
		if err := pause(ctx); err != nil {
			return err
		}
	}
	if f.packer == nil {
		p, err := newPacker(nil)
		if err != nil {
			return err
		}
		f.packer, f.content = p, make([]byte, ChunkBytes)
	}
	c := t.Chunk(i)
	b := f.content[:c.Length]
	if _, err := f.part.r.ReadAt(b, c.Offset); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %d bytes at %d: %w", len(b), c.Offset, err)
	}
	f.packed, f.chunk = f.packer.zstd.EncodeAll(b, f.packed[:0]), i
	if !t.Matches(i, b) || int64(len(f.packed)) != c.Bytes {
		f.chunk = -1
		f.blobs.offers.forget(f.part.key)
		return fmt.Errorf("%w: its content changed since it was read, near byte %d", layer.ErrDamaged, c.Offset)
	}
	return nil
}

// Close releases the encoder.
func (f *frames) Close() error {
	if f.packer != nil {
		f.packer.close()
	}
	return nil
}
