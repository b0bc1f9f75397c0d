package hub

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/signature"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Names of the first files of a stream to a daemon; the signatures are optional. The blobs of the parts follow in
// their order, each table before its frames.
const (
	manifestEntry   = "manifest.json"
	signaturesEntry = "signatures.json"
	configEntry     = "config.json"
	sourceEntry     = "source.json" // optional; the frames of late parts are then absent
)

// maxSignatures limits the bytes of the signatures, which are JSON with base64.
const maxSignatures = 2 * signature.MaxSignatures * signature.MaxPayload

// Incoming is a stream with a snapshot. Open reads its description, State its state, and Receive the rest.
type Incoming struct {
	Manifest *snapshot.Manifest // as sent: without owner and ancestry
	tar      *tar.Reader
	read     *tar.Header // of a file that was begun, but not used; may be nil
	parts    []Part
	next     int // part
	// Source is the place of the late parts. It is nil if the stream has all parts.
	Source *Source
	// Late is called for a late part with its table and, of a layer, its ID. It is required if Source is not nil.
	Late func(ctx context.Context, d *snapshot.Draft, p Part, t *Table, id *layer.ID) error
}

// Open reads the beginning of a stream. trust decides about the signatures of the manifest with a digest, before the
// rest is read. It may be nil.
func Open(r io.Reader, trust func(all []signature.Signature, digest string) error) (*Incoming, error) {
	in := &Incoming{tar: tar.NewReader(r)}
	b, err := in.small(manifestEntry, MaxManifest)
	if err != nil {
		return nil, err
	}
	a, err := ParseArtifact(b)
	if err != nil {
		return nil, err
	}
	if in.parts, err = a.Parts(); err != nil {
		return nil, err
	}
	all, err := in.signatures()
	if err == nil && trust != nil {
		err = trust(all, describe("", b).Digest)
	}
	if err != nil {
		return nil, err
	}
	if b, err = in.small(configEntry, snapshot.MaxManifestBytes); err == nil {
		err = checkBlob(b, a.Config)
	}
	if err != nil {
		return nil, err
	}
	if in.Manifest, err = parseConfig(b, in.parts); err != nil {
		return nil, err
	}
	return in, in.source()
}

// source reads the optional place of the late parts.
func (in *Incoming) source() error {
	h, err := in.tar.Next()
	if err != nil {
		return cut(err)
	}
	if in.read = h; h.Name != sourceEntry {
		return nil
	}
	b, err := in.small(sourceEntry, maxSource)
	if err != nil {
		return err
	}
	s := new(Source)
	if err := json.Unmarshal(b, s); err != nil {
		return invalid("decode %s: %w", sourceEntry, err)
	}
	if err := s.check(); err != nil {
		return invalid("%w", err)
	}
	in.Source = s
	return nil
}

// signatures reads the optional file with signatures.
func (in *Incoming) signatures() (all []signature.Signature, err error) {
	h, err := in.tar.Next()
	if err != nil {
		return nil, cut(err)
	}
	if in.read = h; h.Name != signaturesEntry {
		return nil, nil
	}
	b, err := in.small(signaturesEntry, maxSignatures)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, invalid("decode %s: %w", signaturesEntry, err)
	}
	if len(all) > signature.MaxSignatures {
		return nil, invalid("%d signatures, more than %d", len(all), signature.MaxSignatures)
	}
	return all, nil
}

// entry begins the next file of the stream.
func (in *Incoming) entry(name string) (int64, error) {
	h := in.read
	if in.read = nil; h == nil {
		var err error
		if h, err = in.tar.Next(); err != nil {
			return 0, cut(err)
		}
	}
	if h.Name != name || h.Typeflag != tar.TypeReg {
		return 0, invalid("the stream has the file %.100q, want %s", h.Name, name)
	}
	return h.Size, nil
}

// cut returns an error of the stream as the sender's.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		return invalid("the stream ends early: %w", err)
	}
	return err
}

func (in *Incoming) small(name string, limit int64) ([]byte, error) {
	size, err := in.entry(name)
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, invalid("%s has %d bytes, want at most %d", name, size, limit)
	}
	b, err := io.ReadAll(in.tar)
	if err != nil {
		return nil, cut(err)
	}
	return b, nil
}

// State reads the VM's state. Its size is bounded by the manifest's check.
func (in *Incoming) State() (*State, error) {
	if in.next != 0 {
		return nil, errors.New("the state was read before")
	}
	s := &State{}
	if err := in.part(context.Background(), s, nil); err != nil {
		return nil, err
	}
	s.grow(in.Manifest.Files[in.fileOf(0)].Bytes)
	sum := sha256.Sum256(s.Bytes)
	if hex.EncodeToString(sum[:]) != in.Manifest.State.SHA256 {
		return nil, invalid("the state has another digest than its manifest says")
	}
	return s, nil
}

func (in *Incoming) fileOf(part int) int {
	for i, f := range in.Manifest.Files {
		if f.Name == in.parts[part].Name {
			return i
		}
	}
	return -1
}

// State is a VM's state in memory.
type State struct{ Bytes []byte }

func (s *State) grow(n int64) {
	if int64(len(s.Bytes)) < n {
		s.Bytes = append(s.Bytes, make([]byte, n-int64(len(s.Bytes)))...)
	}
}

// WriteAt implements io.WriterAt.
func (s *State) WriteAt(b []byte, at int64) (int, error) {
	s.grow(at + int64(len(b)))
	return copy(s.Bytes[at:], b), nil
}

// table reads the table of the next part.
func (in *Incoming) table() (*Table, error) {
	p := in.parts[in.next]
	if _, err := in.entry(blobName(p.Table)); err != nil {
		return nil, err
	}
	b, err := readBlob(in.tar, p.Table)
	if err != nil {
		return nil, cut(err)
	}
	t, err := DecodeTable(b)
	if err == nil && (t.Content() != p.Content || t.BlobBytes() != p.Frames.Size) {
		err = invalid("its table describes %d bytes in %d, its manifest %d in %d",
			t.Content(), t.BlobBytes(), p.Content, p.Frames.Size)
	}
	return t, err
}

// part reads the two blobs of the next part into w. shape, if not nil, checks the table first.
func (in *Incoming) part(ctx context.Context, w io.WriterAt, shape func(*Table) error) error {
	p := in.parts[in.next]
	t, err := in.table()
	if err != nil {
		return err
	}
	switch size, err := in.entry(blobName(p.Frames)); {
	case err != nil:
		return err
	case size != p.Frames.Size:
		return invalid("its frames have %d bytes in the stream, its manifest says %d", size, p.Frames.Size)
	}
	if shape != nil {
		if err := shape(t); err != nil {
			return err
		}
	}
	h := &hashing{r: in.tar, hash: sha256.New()}
	if err := unpack(ctx, t, h, w); err != nil {
		return cut(err)
	}
	if got := "sha256:" + hex.EncodeToString(h.hash.Sum(nil)); got != p.Frames.Digest {
		return invalid("the frames have the digest %s, want %s", got, p.Frames.Digest)
	}
	in.next++
	return nil
}

type hashing struct {
	r    io.Reader
	hash hash.Hash
}

func (h *hashing) Read(b []byte) (int, error) {
	n, err := h.r.Read(b)
	h.hash.Write(b[:n])
	return n, err
}

// Receive writes the parts after the state into a draft. The caller commits or discards the draft.
func (in *Incoming) Receive(ctx context.Context, d *snapshot.Draft, state *State) error {
	f, err := d.File(in.Manifest.State.File)
	if err == nil {
		_, err = f.Write(state.Bytes)
	}
	if err != nil {
		return err
	}
	for in.next < len(in.parts) {
		p := in.parts[in.next]
		if err := in.receive(ctx, d, p); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	if _, err := in.tar.Next(); !errors.Is(err, io.EOF) {
		return invalid("the stream goes on after the last blob")
	}
	return in.chains(d)
}

func (in *Incoming) receive(ctx context.Context, d *snapshot.Draft, p Part) error {
	id, is := p.layerOf()
	if in.Source != nil && Late(in.parts, in.next) {
		return in.late(ctx, d, p, id, is)
	}
	if is {
		return in.layer(ctx, d, id)
	}
	f, err := d.File(p.Name)
	if err != nil {
		return err
	}
	if err := d.Layers().Room(0); err != nil {
		return err
	}
	if err := in.part(ctx, &roomy{w: f, room: d.Layers().Room}, nil); err != nil {
		return err
	}
	return f.Truncate(p.Content) // zeros at the end were not written
}

// late registers a part whose frames are fetched later. If the store has the layer, its content has to be the same.
func (in *Incoming) late(ctx context.Context, d *snapshot.Draft, p Part, id layer.ID, isLayer bool) error {
	t, err := in.table()
	if err != nil {
		return err
	}
	in.next++
	if !isLayer {
		return in.Late(ctx, d, p, t, nil)
	}
	if t.Head != layer.ContentOffset {
		return invalid("its table has %d bytes before the content, want %d", t.Head, layer.ContentOffset)
	}
	if !d.Layers().Arriving().Has(id) {
		have, err := d.Layers().Get(id)
		if err == nil {
			d.Keep(have)
			return sameAs(ctx, t, have.File(), id)
		}
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	if err := in.Late(ctx, d, p, t, &id); err != nil {
		return err
	}
	h, err := d.Layers().Get(id)
	if err != nil {
		if errors.Is(err, layer.ErrFormat) || errors.Is(err, layer.ErrDamaged) {
			err = invalid("%w", err)
		}
		return err
	}
	d.Keep(h)
	return nil
}

// sameAs compares a whole layer of the store with a table.
func sameAs(ctx context.Context, t *Table, f *os.File, id layer.ID) error {
	b := make([]byte, ChunkBytes)
	for i := range t.Frames {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c := t.Chunk(i)
		if _, err := f.ReadAt(b[:c.Length], c.Offset); err != nil || !t.Matches(i, b[:c.Length]) {
			return invalid("the store has layer %s with other content at byte %d", id, c.Offset)
		}
	}
	return nil
}

// layer receives a layer. If the store has it already, the content has to be the same.
func (in *Incoming) layer(ctx context.Context, d *snapshot.Draft, id layer.ID) error {
	size := in.parts[in.next].Content
	late := d.Layers().Arriving().Has(id) // of another pull; this one has all of it
	var have *store.Handle
	err := store.ErrNotFound
	if !late {
		have, err = d.Layers().Get(id)
	}
	if err == nil {
		d.Keep(have)
		return in.part(ctx, &same{have.File()}, func(t *Table) error {
			if have.FileBytes() != size {
				return invalid("the store has another layer %s", id)
			}
			return zerosToo(t, have.File(), id)
		})
	}
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	h, err := d.Layers().Receive(id, size, func(f *os.File) error {
		return in.part(ctx, &roomy{w: f, room: d.Layers().Room}, func(t *Table) error {
			if t.Head != layer.ContentOffset {
				return invalid("its table has %d bytes before the content, want %d", t.Head, layer.ContentOffset)
			}
			return nil
		})
	})
	if err != nil {
		if errors.Is(err, layer.ErrFormat) || errors.Is(err, layer.ErrDamaged) {
			err = invalid("%w", err)
		}
		return err
	}
	d.Keep(h)
	if late {
		return d.Layers().Arriving().Drop(id)
	}
	return nil
}

// same compares content with a file instead of writing it.
type same struct{ f *os.File }

func (s *same) WriteAt(b []byte, at int64) (int, error) {
	have := make([]byte, len(b))
	if _, err := s.f.ReadAt(have, at); err != nil {
		return 0, fmt.Errorf("compare with the layer of the store: %w", err)
	}
	if string(have) != string(b) {
		return 0, invalid("the store has a layer of this ID with other content at byte %d", at)
	}
	return len(b), nil
}

// zerosToo compares the chunks of zeros of a table, which unpack does not write, with a layer of the store.
func zerosToo(t *Table, f *os.File, id layer.ID) error {
	for i, fr := range t.Frames {
		if fr.Bytes > 0 {
			continue
		}
		c := t.Chunk(i)
		b := make([]byte, c.Length)
		if _, err := f.ReadAt(b, c.Offset); err != nil {
			return fmt.Errorf("compare with layer %s: %w", id, err)
		}
		if !isZero(b) {
			return invalid("the store has layer %s with other content at byte %d", id, c.Offset)
		}
	}
	return nil
}

// chains checks that the layers form the images of the manifest.
func (in *Incoming) chains(d *snapshot.Draft) error {
	m := in.Manifest
	if err := chain(d, m.Memory, layer.Memory, m.Shape.MemoryBytes()); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	for i, k := range m.Disks {
		if len(k.Layers) == 0 {
			continue
		}
		if err := chain(d, k.Chain, layer.Disk, k.LayerBytes()); err != nil {
			return fmt.Errorf("disk %d: %w", i, err)
		}
	}
	return nil
}

func chain(d *snapshot.Draft, c snapshot.Chain, kind layer.Kind, size int64) error {
	k, err := d.Layers().Chain(c.Layers...)
	if err != nil {
		return invalid("%w", err)
	}
	defer k.Close()
	if k.Kind() != kind || k.Size() != size {
		return invalid("its layers are %d bytes of %s, want %d of %s", k.Size(), k.Kind(), size, kind)
	}
	return nil
}
