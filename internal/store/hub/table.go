package hub

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// ChunkBytes is the content of a frame: the unit of the layers' digests.
const ChunkBytes = 256 << 10

const (
	tableMagic   = "FORKDTBL"
	tableVersion = 1
	tableHead    = 48
	entrySize    = 4 + sha256.Size
	// MaxContent limits the content of one blob, in bytes.
	MaxContent = 256 << 30
	// maxFrame limits a compressed frame: zstd adds little to content that it cannot compress.
	maxFrame = ChunkBytes + 4<<10
	// maxTable limits an encoded table.
	maxTable = tableHead + (MaxContent/ChunkBytes+8)*entrySize
)

// framesHead begins each blob of frames: a skippable frame of zstd, so that no blob is empty.
var framesHead = []byte("\x50\x2a\x4d\x18\x08\x00\x00\x00FORKDFRM")

// Table lists the frames of one blob, so that each can be fetched and verified alone. The content has
// three parts, each with its own chunks: a layer's header, content and index. Other files have only the
// second part.
type Table struct {
	Head, Body, Tail int64 // bytes of the three parts
	Frames           []Frame
	starts           []int64 // offset of each frame in the blob
}

// Frame is a compressed chunk.
type Frame struct {
	Bytes uint32            // compressed; 0 for a chunk of zeros, which has no frame
	Sum   [sha256.Size]byte // of the content
}

// Chunk is the place of a frame in the content and in the blob.
type Chunk struct {
	Offset, Length int64 // in the content
	At, Bytes      int64 // in the blob; Bytes is 0 for zeros
}

// Content returns the size of the content.
func (t *Table) Content() int64 { return t.Head + t.Body + t.Tail }

// BlobBytes returns the size of the blob of frames.
func (t *Table) BlobBytes() int64 {
	n := int64(len(framesHead))
	for _, f := range t.Frames {
		n += int64(f.Bytes)
	}
	return n
}

// Chunk returns the place of frame i.
func (t *Table) Chunk(i int) Chunk {
	if t.starts == nil {
		t.locate()
	}
	c := Chunk{At: t.starts[i], Bytes: int64(t.Frames[i].Bytes)}
	n, begin := int64(i), int64(0)
	for _, part := range []int64{t.Head, t.Body, t.Tail} {
		if have := chunksOf(part); n >= have {
			n, begin = n-have, begin+part
			continue
		}
		c.Offset = begin + n*ChunkBytes
		c.Length = min(ChunkBytes, part-n*ChunkBytes)
		break
	}
	return c
}

// locate computes the places of the frames. Afterwards the table can be used concurrently.
func (t *Table) locate() {
	at := int64(len(framesHead))
	t.starts = make([]int64, len(t.Frames))
	for j, f := range t.Frames {
		t.starts[j] = at
		at += int64(f.Bytes)
	}
}

func chunksOf(n int64) int64 { return (n + ChunkBytes - 1) / ChunkBytes }

// count returns the number of chunks.
func (t *Table) count() int64 { return chunksOf(t.Head) + chunksOf(t.Body) + chunksOf(t.Tail) }

// Encode returns the table's blob.
func (t *Table) Encode() []byte {
	b := make([]byte, 0, tableHead+len(t.Frames)*entrySize)
	b = append(b, tableMagic...)
	b = binary.LittleEndian.AppendUint32(b, tableVersion)
	b = binary.LittleEndian.AppendUint32(b, ChunkBytes)
	for _, n := range []int64{t.Head, t.Body, t.Tail} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(t.Frames)))
	for _, f := range t.Frames {
		b = binary.LittleEndian.AppendUint32(b, f.Bytes)
		b = append(b, f.Sum[:]...)
	}
	return b
}

// DecodeTable is the inverse of Encode. Each table has one encoding.
func DecodeTable(b []byte) (*Table, error) {
	if len(b) < tableHead || string(b[:8]) != tableMagic {
		return nil, invalid("a table of frames is none")
	}
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	if v, chunk := u32(b[8:]), u32(b[12:]); v != tableVersion || chunk != ChunkBytes {
		return nil, invalid("a table of frames has version %d and chunks of %d bytes, this forkd reads version %d with %d",
			v, chunk, tableVersion, ChunkBytes)
	}
	for at := 16; at < 40; at += 8 {
		if n := u64(b[at:]); n > MaxContent {
			return nil, invalid("a table of %d bytes of content, want at most %d", n, int64(MaxContent))
		}
	}
	t := &Table{Head: int64(u64(b[16:])), Body: int64(u64(b[24:])), Tail: int64(u64(b[32:]))}
	rest := b[tableHead:]
	if n := u64(b[40:]); t.Content() > MaxContent || n != uint64(t.count()) || n*entrySize != uint64(len(rest)) {
		return nil, invalid("a table of %d frames in %d bytes for %d bytes of content", n, len(b), t.Content())
	}
	t.Frames = make([]Frame, t.count())
	for i := range t.Frames {
		f := Frame{Bytes: u32(rest), Sum: [sha256.Size]byte(rest[4:])}
		if f.Bytes > maxFrame {
			return nil, invalid("frame %d has %d bytes, want at most %d", i, f.Bytes, maxFrame)
		}
		t.Frames[i], rest = f, rest[entrySize:]
	}
	return t, nil
}

var zeros = make([]byte, ChunkBytes)

var zeroSum = sync.OnceValue(func() [sha256.Size]byte { return sha256.Sum256(zeros) })

// sumOf returns the digest of a chunk. It knows the digest of zeros.
func sumOf(b []byte, zero bool) [sha256.Size]byte {
	if zero && len(b) == ChunkBytes {
		return zeroSum()
	}
	return sha256.Sum256(b)
}

// Open returns the content of frame i, verified. packed is the frame; it is empty for zeros. The result is valid
// until the next call with the same Opener.
func (o *Opener) Open(t *Table, i int, packed []byte) ([]byte, error) {
	c := t.Chunk(i)
	if int64(len(packed)) != c.Bytes {
		return nil, invalid("frame %d has %d bytes, want %d", i, len(packed), c.Bytes)
	}
	b, zero := zeros[:c.Length], c.Bytes == 0
	if !zero {
		var h zstd.Header
		if err := h.Decode(packed); err != nil {
			return nil, invalid("frame %d: %w", i, err)
		}
		if h.Skippable || !h.HasFCS || h.FrameContentSize != uint64(c.Length) {
			return nil, invalid("frame %d declares %d bytes, want %d", i, h.FrameContentSize, c.Length)
		}
		var err error
		if b, err = o.zstd.DecodeAll(packed, o.buf[:0]); err != nil {
			return nil, invalid("frame %d: %w", i, err)
		}
	}
	if int64(len(b)) != c.Length || sumOf(b, zero) != t.Frames[i].Sum {
		return nil, invalid("frame %d: its content was changed", i)
	}
	return b, nil
}

// Opener unpacks frames. It is not safe for concurrent use.
type Opener struct {
	zstd *zstd.Decoder
	buf  []byte
}

// NewOpener returns an Opener. Close releases it.
func NewOpener() (*Opener, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(ChunkBytes),
		zstd.WithDecoderMaxWindow(1<<20))
	if err != nil {
		return nil, err
	}
	return &Opener{zstd: d, buf: make([]byte, 0, ChunkBytes)}, nil
}

// Close releases the memory of the Opener.
func (o *Opener) Close() { o.zstd.Close() }

// isZero reports whether a chunk is all zeros.
func isZero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }

// Matches reports whether b is the content of frame i.
func (t *Table) Matches(i int, b []byte) bool {
	return int64(len(b)) == t.Chunk(i).Length && sha256.Sum256(b) == t.Frames[i].Sum
}
