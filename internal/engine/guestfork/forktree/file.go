package forktree

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Each ended child has a file: one line of JSON, then its result.
const filePrefix = "ended-"

// maxRecord limits the line.
const maxRecord = 4 << 10

// record is the line.
type record struct {
	Token string         `json:"token"`
	Bytes int            `json:"bytes"`
	Ended forkwire.Ended `json:"ended"`
}

func (f *Family) path(id string) string { return filepath.Join(f.dir, filePrefix+filepath.Base(id)) }

// writeFile writes the file completely or not at all. The run directory is a tmpfs, so the file
// must be consistent but need not be durable.
func (f *Family) writeFile(end forkwire.Ended, token string, result []byte) error {
	b, err := json.Marshal(record{token, len(result), end})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("keep the end of %s: %w", end.ID, err)
	}
	if err := durable.Replace(f.path(end.ID), append(append(b, '\n'), result...)); err != nil {
		return fmt.Errorf("keep the end of %s: %w", end.ID, err)
	}
	return nil
}

func (f *Family) removeFile(id string) { os.Remove(f.path(id)) }

func (f *Family) readResult(id string) ([]byte, error) {
	_, result, err := readFile(f.path(id))
	return result, err
}

func readFile(path string) (rec record, result []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return rec, nil, err
	}
	defer file.Close()
	r := bufio.NewReaderSize(io.LimitReader(file, maxRecord+forkwire.MaxResult), maxRecord)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return rec, nil, fmt.Errorf("read %s: its first line: %w", path, err)
	}
	if err := json.Unmarshal(line, &rec); err != nil {
		return rec, nil, fmt.Errorf("read %s: %w", path, err)
	}
	if rec.Bytes < 0 || rec.Bytes > forkwire.MaxResult {
		return rec, nil, fmt.Errorf("read %s: a result of %d bytes", path, rec.Bytes)
	}
	result = make([]byte, rec.Bytes)
	if _, err := io.ReadFull(r, result); err != nil {
		return rec, nil, fmt.Errorf("read %s: its result: %w", path, err)
	}
	return rec, result, nil
}

// Load reads the ends recorded by an earlier daemon. It skips unreadable files and returns their
// errors.
func (f *Family) Load() error {
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, en := range entries {
		id, ok := strings.CutPrefix(en.Name(), filePrefix)
		if !ok {
			continue
		}
		rec, result, err := readFile(filepath.Join(f.dir, en.Name()))
		switch {
		case err != nil:
			errs = append(errs, err)
		case rec.Ended.ID != id:
			errs = append(errs, fmt.Errorf("%s is about %q", en.Name(), rec.Ended.ID))
		default:
			f.children[id] = &child{token: rec.Token, ended: true, end: rec.Ended, bytes: len(result)}
			f.held += len(result)
		}
	}
	return errors.Join(errs...)
}
