package hubbench

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// frameBytes is the size from which a blob has frames. Smaller ones are tables and manifests.
const frameBytes = 1 << 20

// bound measures the parts of a whole pull on one CPU: the blobs of the registry are unpacked, and the result is hashed.
func (r *run) bound(blobs string) (b Bound, err error) {
	r.Say("unpack and hash its blobs")
	names, err := filepath.Glob(filepath.Join(blobs, "sha256", "*"))
	if err != nil {
		return b, err
	}
	var packed int64
	var unpack, hash time.Duration
	for _, name := range names {
		st, err := os.Stat(name)
		if err != nil {
			return b, err
		}
		packed += st.Size()
		if st.Size() < frameBytes {
			continue
		}
		if err := timeBlob(name, &unpack, &hash); err != nil {
			return b, fmt.Errorf("unpack blob %s: %w", filepath.Base(name), err)
		}
	}
	if r.RateMB > 0 {
		b.LinkMS = float64(packed) / float64(r.RateMB) / 1000
	}
	b.ZstdMS, b.SHA256MS = measure.Millis(unpack), measure.Millis(hash)
	return b, nil
}

func timeBlob(name string, unpack, hash *time.Duration) error {
	f, err := os.Open(name) // #nosec G304 -- a blob of our own registry
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	sum, buf := sha256.New(), make([]byte, 256<<10)
	for {
		at := time.Now()
		n, err := io.ReadFull(z, buf)
		middle := time.Now()
		_, _ = sum.Write(buf[:n])
		*unpack += middle.Sub(at)
		*hash += time.Since(middle)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
