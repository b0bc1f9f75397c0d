package layer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestDigestsAreOfTheContentByChunks(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 3))
		const blocks = 500
		l := randomLayer(t, r, spec(named(1), ID{}, blocks), make([]byte, blocks*BlockSize))
		sums, err := l.Digest(t.Context(), func(context.Context) error { return nil })
		must(t, err)
		content := make([]byte, l.DataBytes)
		_, err = l.File().ReadAt(content, ContentOffset)
		must(t, err)
		var want []byte
		for chunk := range slices.Chunk(content, ChunkBytes) {
			sum := sha256.Sum256(chunk)
			want = append(want, sum[:]...)
		}
		if !bytes.Equal(sums.sums, want) {
			t.Errorf("seed %d: %d bytes have other digests", seed, l.DataBytes)
		}
		var last int64
		found, err := l.Verify(t.Context(), sums, func(done, total int64) {
			if done < last || done > total || total != l.FileBytes() {
				t.Errorf("progress %d of %d, after %d", done, total, last)
			}
			last = done
		})
		if err != nil || len(found) != 0 || last != l.FileBytes() {
			t.Errorf("verify: %v, %v, up to %d of %d", found, err, last, l.FileBytes())
		}
	}
}

func TestVerifyFindsTheFlippedByte(t *testing.T) {
	const blocks = 4 * ChunkBytes / BlockSize
	for name, c := range map[string]struct {
		at   int64
		want []Damage
	}{
		"in the header":        {300, []Damage{{0, headerSize, "header or index changed since they were written"}}},
		"in the index":         {headerSize + 4*ChunkBytes + 1, []Damage{{0, headerSize, "header or index changed since they were written"}}},
		"in the first chunk":   {headerSize, []Damage{{headerSize, ChunkBytes, "changed since it was written"}}},
		"in the last chunk":    {headerSize + 4*ChunkBytes - 1, []Damage{{headerSize + 3*ChunkBytes, ChunkBytes, "changed since it was written"}}},
		"nowhere":              {-1, nil},
		"in two, side by side": {-2, []Damage{{headerSize + ChunkBytes, 2 * ChunkBytes, "changed since it was written"}}},
		"all that was cut off": {-3, []Damage{{0, headerSize, "layer is damaged: it is cut short"}, {headerSize + ChunkBytes, 3 * ChunkBytes, "layer is damaged: it is cut short"}}},
	} {
		w := newWriter(t, spec(named(1), ID{}, blocks), Options{})
		must(t, w.Data(0, bytes.Repeat(block(1), blocks)))
		l := finish(t, w)
		d := digest(t, l)
		flip := func(at int64) { _, err := l.File().WriteAt([]byte{77}, at); must(t, err) }
		switch c.at {
		case -1:
		case -2:
			flip(headerSize + ChunkBytes)
			flip(headerSize + 2*ChunkBytes)
		case -3:
			must(t, l.File().Truncate(headerSize+ChunkBytes+5))
		default:
			flip(c.at)
		}
		found, err := l.Verify(t.Context(), d, nil)
		if err != nil || !slices.Equal(found, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, found, err, c.want)
		}
	}
}

func TestDigestingEndsWithItsContext(t *testing.T) {
	l, d, _ := sample(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := l.Digest(ctx, nil); !errors.Is(err, stop) {
		t.Errorf("digest: %v", err)
	}
	if _, err := l.Verify(ctx, d, nil); !errors.Is(err, stop) {
		t.Errorf("verify: %v", err)
	}
	if _, err := l.Digest(t.Context(), func(context.Context) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a pause that fails: %v", err)
	}
}

// resum corrects the file's own digest.
func resum(b []byte) []byte {
	if n := len(b) - sha256.Size; n >= 0 {
		sum := sha256.Sum256(b[:n])
		copy(b[n:], sum[:])
	}
	return b
}

func TestDigestsThatAreNone(t *testing.T) {
	l, d, _ := sample(t)
	good := d.Encode()
	flip := func(at int) []byte { b := bytes.Clone(good); b[at] ^= 1; return b }
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":           {nil, ErrDamaged},
		"cut short":       {good[:len(good)-1], ErrDamaged},
		"another magic":   {flip(0), ErrFormat},
		"another version": {resum(flip(8)), ErrFormat},
		"a flipped bit":   {flip(digestHead), ErrDamaged},
		"other chunks":    {resum(flip(13)), ErrDamaged},
		"another layer":   {resum(flip(16)), ErrDamaged},
		"other content":   {resum(flip(32)), ErrDamaged},
	} {
		if _, err := DecodeDigests(bytes.NewReader(c.file), int64(len(c.file)), l.Info); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	again, err := DecodeDigests(bytes.NewReader(good), int64(len(good)), l.Info)
	if err != nil || !bytes.Equal(again.Encode(), good) {
		t.Errorf("a good one: %v", err)
	}
}

func FuzzDecodeDigests(f *testing.F) {
	l, d, _ := sample(f)
	f.Add(d.Encode(), l.DataBytes)
	f.Add([]byte(digestMagic), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, content int64) {
		b = resum(bytes.Clone(b))
		of := l.Info
		of.DataBytes = min(max(content, 0), MaxSize)
		got, err := DecodeDigests(bytes.NewReader(b), int64(len(b)), of)
		if err == nil && !bytes.Equal(got.Encode(), b) {
			t.Fatal("what was read is written in another way")
		}
	})
}
