package layer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// sample returns a small layer with all features of the format.
func sample(t testing.TB) (*Layer, *Digests, []byte) {
	t.Helper()
	s := spec(named(1), named(2), 100)
	s.View = named(3)
	w := newWriter(t, s, Options{})
	must(t, w.Data(BlockSize, block(0x11)))
	must(t, w.Zero(2*BlockSize, 7*BlockSize))
	must(t, w.Data(50*BlockSize, append(block(0x22), block(0x33)...)))
	l := finish(t, w)
	b, err := os.ReadFile(l.File().Name())
	must(t, err)
	return l, digest(t, l), b
}

func TestGolden(t *testing.T) {
	l, d, file := sample(t)
	for name, got := range map[string][]byte{"layer-v2": file, "digests-v2": d.Encode()} {
		golden := filepath.Join("testdata", name)
		if *update {
			must(t, os.MkdirAll("testdata", 0o755))
			must(t, os.WriteFile(golden, got, 0o644))
		}
		want, err := os.ReadFile(golden)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: format version %d has changed", name, Version)
		}
	}
	info, runs, err := decode(bytes.NewReader(file), int64(len(file)))
	if err != nil || info != l.Info || !slices.Equal(runs, l.runs) {
		t.Errorf("read %+v %v, %v; want %+v %v", info, runs, err, l.Info, l.runs)
	}
}

// fixChecksums corrects the checksums.
func fixChecksums(b []byte) []byte {
	if len(b) < headerSize {
		return b
	}
	if at := headerSize + binary.LittleEndian.Uint64(b[80:]); at <= uint64(len(b)) {
		binary.LittleEndian.PutUint32(b[88:], crc32.ChecksumIEEE(b[at:]))
	}
	binary.LittleEndian.PutUint32(b[headerSize-4:], crc32.ChecksumIEEE(b[:headerSize-4]))
	return b
}

func TestWhatIsNoLayerIsRefused(t *testing.T) {
	_, _, good := sample(t)
	index := headerSize + 3*BlockSize
	flip := func(at int) []byte { b := bytes.Clone(good); b[at] ^= 1; return b }
	put := func(at int, v uint64) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b[at:], v)
		return fixChecksums(b)
	}
	put32 := func(at int, v uint32) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[at:], v)
		return fixChecksums(b)
	}
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":                      {nil, ErrDamaged},
		"a header cut short":         {good[:100], ErrDamaged},
		"cut short":                  {good[:len(good)-1], ErrDamaged},
		"too long":                   {append(bytes.Clone(good), 0), ErrDamaged},
		"never finished":             {make([]byte, len(good)), ErrFormat},
		"another magic":              {flip(0), ErrFormat},
		"another version":            {flip(8), ErrFormat},
		"a flipped bit in header":    {flip(70), ErrDamaged},
		"a flipped bit in its tail":  {flip(headerSize - 1), ErrDamaged},
		"a flipped bit in index":     {flip(index + 40), ErrDamaged},
		"an unknown kind":            {put32(12, 3), ErrDamaged},
		"an image of no size":        {put(64, 0), ErrDamaged},
		"an image of 2^63 bytes":     {put(64, 1<<63), ErrDamaged},
		"other blocks":               {put32(72, 512), ErrDamaged},
		"too many runs":              {put32(76, MaxRuns+1), ErrDamaged},
		"fewer runs":                 {put32(76, 2), ErrDamaged},
		"more content than image":    {put(80, 101*BlockSize), ErrDamaged},
		"content of 2^64 bytes":      {put(80, 1<<64-BlockSize), ErrDamaged},
		"something in reserve":       {put32(96, 1), ErrDamaged},
		"a run within a block":       {put(index, 1), ErrDamaged},
		"a run behind the image":     {put(index+2*runSize, 99*BlockSize), ErrDamaged},
		"a run of 2^64 bytes":        {put(index+2*runSize+8, 1<<64-BlockSize), ErrDamaged},
		"an empty run":               {put(index+runSize+8, 0), ErrDamaged},
		"runs that overlap":          {put(index+runSize, BlockSize), ErrDamaged},
		"content somewhere else":     {put(index+2*runSize+16, BlockSize), ErrDamaged},
		"content of a zero run":      {put(index+runSize+16, BlockSize), ErrDamaged},
		"a run of no type":           {put32(index+24, 0), ErrDamaged},
		"a reserved word":            {put32(index+28, 1), ErrDamaged},
		"data that should be zero":   {put32(index+runSize+24, runData), ErrDamaged},
		"content without a run":      {put32(index+2*runSize+24, runZero), ErrDamaged},
		"runs that could be one":     {put(index+2*runSize+8, BlockSize), ErrDamaged},
		"no ID":                      {fixChecksums(slices.Concat(good[:16], make([]byte, 16), good[32:])), ErrDamaged},
		"a header for another index": {slices.Concat(good[:index], good[index+runSize:], good[index:index+runSize]), ErrDamaged},
	} {
		if _, _, err := decode(bytes.NewReader(c.file), int64(len(c.file))); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	dir, err := os.Open(t.TempDir())
	must(t, err)
	defer dir.Close()
	if _, err := Open(dir); !errors.Is(err, ErrFormat) {
		t.Errorf("a directory: %v", err)
	}
}

// sparse is a layer's file without its content, so that mutations hit the parsed parts.
type sparse struct {
	header, index []byte
	at            int64 // of the index
}

func (s sparse) ReadAt(p []byte, off int64) (int, error) {
	b := s.header
	if off >= s.at {
		b, off = s.index, off-s.at
	}
	return bytes.NewReader(b).ReadAt(p, off)
}

func FuzzDecode(f *testing.F) {
	l, _, good := sample(f)
	f.Add(good[:headerUsed-4], good[l.indexOffset():])
	f.Add([]byte(magic), []byte{})
	f.Fuzz(func(t *testing.T, header, index []byte) {
		s := sparse{header: make([]byte, headerSize), index: index}
		copy(s.header, header)
		// Correct the checksums; otherwise no mutation would pass them.
		binary.LittleEndian.PutUint32(s.header[88:], crc32.ChecksumIEEE(index))
		binary.LittleEndian.PutUint32(s.header[headerSize-4:], crc32.ChecksumIEEE(s.header[:headerSize-4]))
		s.at = headerSize + int64(binary.LittleEndian.Uint64(s.header[80:])&(1<<62-1))
		size := s.at + int64(len(index))
		info, runs, err := decode(s, size)
		if err != nil {
			return
		}
		if len(runs) != info.RunCount || info.FileBytes() != size || info.check() != nil {
			t.Fatalf("%+v with %d runs of %d bytes", info, len(runs), size)
		}
		prev := run{}
		for _, r := range runs {
			if r.Offset < prev.end() || r.Length <= 0 || r.end() > info.Size || !r.Zero && (r.FileOffset < headerSize || r.FileOffset+r.Length > info.indexOffset()) {
				t.Fatalf("run %+v behind %+v of %+v", r, prev, info)
			}
			prev = r
		}
		if !bytes.Equal(index, encodeIndex(runs)) || !bytes.Equal(s.header, encodeHeader(info, index)) {
			t.Fatal("what was read is written in another way")
		}
	})
}
