package network

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// nowhere searches all files written by the daemon and forkd-net since the source got its secret:
// layers, with the guest's memory and disk, manifests, receipts, logs. The canary, which the guest
// itself had, proves that the search would find it.
func (s *source) nowhere(t *testing.T) {
	var files []string
	for _, dir := range []string{s.Data, filepath.Join(s.Run, "net")} {
		files = append(files, written(t, dir, s.began)...)
	}
	files = append(files, filepath.Join(s.Dir, "daemon.log"))
	seen, size := false, int64(0)
	for _, file := range files {
		found, n, err := search(file, secret, secretOfChild, canary)
		if err != nil {
			t.Fatal(err)
		}
		size += n
		seen = seen || found[canary]
		if found[secret] || found[secretOfChild] {
			t.Errorf("the secret is in %s", file)
		}
	}
	if !seen {
		t.Error("what the guest had in its memory was not found")
	}
	t.Logf("%d files, %d MiB", len(files), size>>20)
}

// written returns the files below a folder written since a time.
func written(t *testing.T, dir string, since time.Time) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // it was deleted meanwhile
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil && !info.ModTime().Before(since) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// search searches a file for words. It skips holes, which make up most of a disk.
func search(file string, words ...string) (found map[string]bool, size int64, err error) {
	found = map[string]bool{}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return found, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	for at := int64(0); ; {
		begin, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // only a hole is left
			return found, size, nil
		}
		if err != nil {
			return nil, size, err
		}
		if at, err = f.Seek(begin, unix.SEEK_HOLE); err != nil {
			return nil, size, err
		}
		size += at - begin
		if err := searchPart(io.NewSectionReader(f, begin, at-begin), found, words); err != nil {
			return nil, size, err
		}
	}
}

// searchPart notes the words in a part of a file.
func searchPart(r io.Reader, found map[string]bool, words []string) error {
	const longest = 256 // length of a word
	buf, kept := make([]byte, longest+1<<20), 0
	for {
		n, err := r.Read(buf[kept:])
		end := kept + n
		for _, word := range words {
			found[word] = found[word] || bytes.Contains(buf[:end], []byte(word))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		kept = copy(buf, buf[max(0, end-longest):end])
	}
}
