package layer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
)

// ChunkBytes is the amount of stored content per digest. It is small enough to locate damage within 64 blocks and
// to fit into a CPU's cache, and large enough for digests to be 1/8192 of the content.
const ChunkBytes = 256 << 10

const (
	digestMagic  = "FORKDSUM"
	digestHead   = 40 + sha256.Size // magic, version, chunk size, ID, content, digest of header and index
	digestsExtra = digestHead + sha256.Size
)

// Digests holds a layer's digests. They are kept beside the layer, not in it, because a layer is immutable once
// it has its name.
type Digests struct {
	layer ID
	bytes int64             // of content
	meta  [sha256.Size]byte // of header and index
	sums  []byte            // one for each chunk of content
}

// Encode returns the content of the digests' file.
func (d *Digests) Encode() []byte {
	b := make([]byte, 0, digestsExtra+len(d.sums))
	b = append(b, digestMagic...)
	b = binary.LittleEndian.AppendUint32(b, Version)
	b = binary.LittleEndian.AppendUint32(b, ChunkBytes)
	b = append(b, d.layer[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.bytes))
	b = append(b, d.meta[:]...)
	b = append(b, d.sums...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// Sum returns the SHA-256 of all fields of the digests, in hexadecimal.
func (d *Digests) Sum() string {
	b := d.Encode()
	return hex.EncodeToString(b[len(b)-sha256.Size:])
}

func chunks(content int64) int64 { return (content + ChunkBytes - 1) / ChunkBytes }

// DecodeDigests reads a layer's digests from a file of size bytes.
func DecodeDigests(r io.ReaderAt, size int64, of Info) (*Digests, error) {
	want := digestsExtra + chunks(of.DataBytes)*sha256.Size
	if size != want {
		return nil, damaged("its digests have %d bytes, want %d", size, want)
	}
	b := make([]byte, want)
	if err := readFull(r, b, 0); err != nil {
		return nil, fmt.Errorf("digests: %w", err)
	}
	body, sum := b[:want-sha256.Size], b[want-sha256.Size:]
	d := &Digests{
		layer: ID(b[16:32]), bytes: int64(binary.LittleEndian.Uint64(b[32:])),
		meta: [sha256.Size]byte(b[40:]), sums: body[digestHead:],
	}
	switch v := binary.LittleEndian.Uint32(b[8:]); {
	case string(b[:8]) != digestMagic:
		return nil, fmt.Errorf("%w: its digests are none", ErrFormat)
	case v != Version:
		return nil, fmt.Errorf("%w: its digests have version %d, this forkd reads version %d", ErrFormat, v, Version)
	case sha256.Sum256(body) != [sha256.Size]byte(sum):
		return nil, damaged("its digests have changed")
	case binary.LittleEndian.Uint32(b[12:]) != ChunkBytes || d.layer != of.ID || d.bytes != of.DataBytes:
		return nil, damaged("its digests are of %d bytes of layer %s, want %d of %s", d.bytes, d.layer, of.DataBytes, of.ID)
	}
	return d, nil
}

// hasher computes the digests of content that arrives in pieces of any size.
type hasher struct {
	chunk hash.Hash
	n     int // bytes in chunk
	sums  []byte
}

func newHasher() *hasher { return &hasher{chunk: sha256.New()} }

func (h *hasher) write(p []byte) {
	for len(p) > 0 {
		n := min(len(p), ChunkBytes-h.n)
		h.chunk.Write(p[:n])
		if h.n, p = h.n+n, p[n:]; h.n == ChunkBytes {
			h.end()
		}
	}
}

func (h *hasher) end() {
	h.sums = h.chunk.Sum(h.sums)
	h.chunk.Reset()
	h.n = 0
}

// zeroChunk is the digest of a chunk of zeros. Content may have large holes.
var zeroChunk = sha256.Sum256(make([]byte, ChunkBytes))

// zeros is equivalent to write with n zeros.
func (h *hasher) zeros(n int64) {
	for n > 0 {
		if h.n == 0 && n >= ChunkBytes {
			h.sums = append(h.sums, zeroChunk[:]...)
			n -= ChunkBytes
			continue
		}
		part := min(n, ChunkBytes-int64(h.n), BlockSize)
		h.write(zeroBlock[:part])
		n -= part
	}
}

func (h *hasher) finish(info Info, header, index []byte) *Digests {
	if h.n > 0 {
		h.end()
	}
	return &Digests{layer: info.ID, bytes: info.DataBytes, meta: metaSum(header, index), sums: h.sums}
}

func metaSum(header, index []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(header)
	h.Write(index)
	return [sha256.Size]byte(h.Sum(nil))
}

// Digest reads the layer's content and computes its digests. pause is called before each chunk and may block to
// let more urgent work proceed; it may be nil.
func (l *Layer) Digest(ctx context.Context, pause func(context.Context) error) (*Digests, error) {
	index := encodeIndex(l.runs)
	h := newHasher()
	buf := make([]byte, ChunkBytes)
	for at := int64(0); at < l.DataBytes; at += ChunkBytes {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if pause != nil {
			if err := pause(ctx); err != nil {
				return nil, err
			}
		}
		b := buf[:min(ChunkBytes, l.DataBytes-at)]
		if isHole(l.file, headerSize+at, int64(len(b))) {
			h.zeros(int64(len(b)))
			continue
		}
		if err := readFull(l.file, b, headerSize+at); err != nil {
			return nil, fmt.Errorf("digest layer %s: %w", l.ID, err)
		}
		h.write(b)
	}
	return h.finish(l.Info, encodeHeader(l.Info, index), index), nil
}

// Damage is a range of a layer's file that differs from the data written.
type Damage struct {
	Offset, Length int64 // in the file, in bytes
	Detail         string
}

// Verify reads the whole file and compares it with its digests. Damage is a result, not an error; an error means
// that ctx ended. progress reports bytes of the file and may be nil.
func (l *Layer) Verify(ctx context.Context, d *Digests, progress func(done, total int64)) ([]Damage, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	total := l.FileBytes()
	found := l.verifyMeta(d)
	progress(total-l.DataBytes, total)
	buf := make([]byte, ChunkBytes)
	for i := range chunks(l.DataBytes) {
		if ctx.Err() != nil {
			return found, context.Cause(ctx)
		}
		at := i * ChunkBytes
		b := buf[:min(ChunkBytes, l.DataBytes-at)]
		want := d.sums[i*sha256.Size:][:sha256.Size]
		if len(b) == ChunkBytes && bytes.Equal(want, zeroChunk[:]) && isHole(l.file, headerSize+at, ChunkBytes) {
			// The chunk is unchanged, and there is no data to read.
		} else if err := readFull(l.file, b, headerSize+at); err != nil {
			found = addDamage(found, Damage{headerSize + at, int64(len(b)), err.Error()})
		} else if got := sha256.Sum256(b); !bytes.Equal(got[:], want) {
			found = addDamage(found, Damage{headerSize + at, int64(len(b)), "changed since it was written"})
		}
		progress(total-l.DataBytes+at+int64(len(b)), total)
	}
	return found, nil
}

// verifyMeta reads header and index again, because the layer may have been open for long.
func (l *Layer) verifyMeta(d *Digests) []Damage {
	header, index := make([]byte, headerSize), make([]byte, l.RunCount*runSize)
	err := readFull(l.file, header, 0)
	if err == nil {
		err = readFull(l.file, index, l.indexOffset())
	}
	switch {
	case err != nil:
		return []Damage{{0, headerSize, err.Error()}}
	case metaSum(header, index) != d.meta:
		return []Damage{{0, headerSize, "header or index changed since they were written"}}
	}
	return nil
}

// addDamage appends a damage, merged with its neighbour if possible.
func addDamage(found []Damage, d Damage) []Damage {
	if n := len(found); n > 0 {
		if last := &found[n-1]; last.Offset+last.Length == d.Offset && last.Detail == d.Detail {
			last.Length += d.Length
			return found
		}
	}
	return append(found, d)
}

// Chunk returns the digest of a chunk of content.
func (d *Digests) Chunk(i int) [sha256.Size]byte { return [sha256.Size]byte(d.sums[i*sha256.Size:]) }
