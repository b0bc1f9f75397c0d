package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/sys/durable"
)

// ChunkBytes is the amount of content per digest. A chunk of zeros has no digest.
const ChunkBytes = 1 << 20

// maxDigestBytes limits the digest file: one line per chunk of the largest guest, with some margin.
const maxDigestBytes = 64 << 20

const digestHeader = "forkd-digests 1 sha256 1048576"

var zeros = make([]byte, ChunkBytes)

// digests maps a file's name and chunk number to the chunk's digest.
type digests map[string]map[int64][sha256.Size]byte

// Hash computes the content digests of a committed snapshot and writes them: first for its layers that have no
// digests yet, then for its files. pause is called before each chunk and may block to let more urgent work
// proceed; it may be nil.
func (s *Store) Hash(ctx context.Context, tag string, pause func(context.Context) error) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	// Open the directory before the files: if the tag is reused for another snapshot meanwhile, the digests go to
	// the old folder.
	dir, err := os.OpenRoot(s.Dir(tag))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("snapshot %s %w", tag, storeerr.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("digest snapshot %s: %w", tag, err)
	}
	defer dir.Close()
	files, err := s.open(tag, nil)
	if err != nil {
		return err
	}
	defer files.Close()
	for _, id := range files.Manifest.LayerIDs() {
		if err := s.layers.Hash(ctx, id, pause); err != nil {
			return fmt.Errorf("digest snapshot %s: %w", tag, err)
		}
	}
	var out bytes.Buffer
	fmt.Fprintln(&out, digestHeader)
	for _, f := range files.Manifest.Files {
		if f.Name == files.Manifest.State.File {
			continue // the manifest has its digest
		}
		fmt.Fprintf(&out, "file %s %d\n", f.Name, f.Bytes)
		err := chunks(ctx, files.File(f.Name), f.Bytes, pause, func(i int64, b []byte) error {
			_, err := fmt.Fprintf(&out, "%d %x\n", i, sha256.Sum256(b))
			return err
		})
		if err != nil {
			return fmt.Errorf("digest %s of snapshot %s: %w", f.Name, tag, err)
		}
	}
	fmt.Fprintf(&out, "end %x\n", sha256.Sum256(out.Bytes()))
	if err := s.writeDigests(tag, dir, out.Bytes()); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("snapshot %s %w", tag, storeerr.ErrNotFound) // deleted meanwhile
	} else if err != nil {
		return fmt.Errorf("write digests of snapshot %s: %w", tag, err)
	}
	return nil
}

// writeDigests writes to the tag's folder if it is still dir.
func (s *Store) writeDigests(tag string, dir *os.Root, b []byte) (err error) {
	s.naming.Lock()
	defer s.naming.Unlock()
	was, err := dir.Stat(".")
	if err != nil {
		return err
	}
	if is, err := os.Stat(s.Dir(tag)); err != nil {
		return err
	} else if !os.SameFile(was, is) {
		return fs.ErrNotExist
	}
	const temp = "." + DigestFile
	defer func() {
		if err != nil {
			_ = dir.Remove(temp)
		}
	}()
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := failpoint.At(failpoint.SnapshotPrefix + "hash.rename"); err != nil {
		return err
	}
	if err := dir.Rename(temp, DigestFile); err != nil {
		return err
	}
	if err := failpoint.At(failpoint.SnapshotPrefix + "hash.sync"); err != nil {
		return err
	}
	folder, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// chunks calls each with every chunk that is not all zeros. It skips holes. The bytes are valid until each
// returns.
func chunks(ctx context.Context, f *os.File, size int64, pause func(context.Context) error,
	each func(i int64, b []byte) error) error {
	buf := make([]byte, ChunkBytes)
	for at := int64(0); at < size; {
		next, err := nextData(f, at, size)
		if err != nil {
			return err
		}
		i := next / ChunkBytes
		if at = i * ChunkBytes; next >= size {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if pause != nil {
			if err := pause(ctx); err != nil {
				return err
			}
		}
		b := buf[:min(ChunkBytes, size-at)]
		if _, err := f.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(b, zeros[:len(b)]) {
			if err := each(i, b); err != nil {
				return err
			}
		}
		at += int64(len(b))
	}
	return nil
}

// nextData returns the first offset of data at or after at, or size if there is no more.
func nextData(f *os.File, at, size int64) (int64, error) {
	next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, nil
	case errors.Is(err, unix.EINVAL): // a file system without holes
		return at, nil
	}
	return next, err
}

// readDigests reads and checks a digest file.
func readDigests(path string) (digests, error) {
	b, err := durable.ReadFile(path, maxDigestBytes)
	if err != nil {
		return nil, err
	}
	return parseDigests(b)
}

func parseDigests(b []byte) (digests, error) {
	body, end, ok := cutLastLine(b)
	if !ok || string(end) != fmt.Sprintf("end %x", sha256.Sum256(body)) {
		return nil, errors.New("is cut short or changed")
	}
	sc := bufio.NewScanner(bytes.NewReader(body))
	if !sc.Scan() || sc.Text() != digestHeader {
		return nil, errors.New("has an unknown header; recreate the snapshot, or verify it with the forkd that wrote it")
	}
	d := digests{}
	var file map[int64][sha256.Size]byte
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		switch {
		case len(f) == 3 && f[0] == "file":
			file = map[int64][sha256.Size]byte{}
			d[f[1]] = file
		case len(f) == 2 && file != nil:
			i, err := strconv.ParseInt(f[0], 10, 64)
			sum, err2 := hex.DecodeString(f[1])
			if err != nil || err2 != nil || i < 0 || len(sum) != sha256.Size {
				return nil, fmt.Errorf("has a bad line %q", ellipsis.Clip(sc.Text(), 100))
			}
			file[i] = [sha256.Size]byte(sum)
		default:
			return nil, fmt.Errorf("has a bad line %q", ellipsis.Clip(sc.Text(), 100))
		}
	}
	return d, sc.Err()
}

// cutLastLine splits off the last line, which must be whole.
func cutLastLine(b []byte) (body, last []byte, ok bool) {
	if len(b) == 0 || b[len(b)-1] != '\n' {
		return nil, nil, false
	}
	i := bytes.LastIndexByte(b[:len(b)-1], '\n')
	return b[:i+1], b[i+1 : len(b)-1], true
}
