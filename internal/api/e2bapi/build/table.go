package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/forkd/forkd/internal/sys/durable"
)

// maxRecord limits the size of a table's file, in bytes.
const maxRecord = 8 << 20

// aKey ensures that a record's file stays in its folder.
var aKey = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// table holds records of one kind, with one file each. Its user holds the lock.
type table[T any] struct {
	dir string
	all map[string]T
}

// openTable reads the records below dir, and creates dir if it is missing. Files that are not
// records stay, and their names are returned.
func openTable[T any](dir string) (table[T], []string, error) {
	t := table[T]{dir, map[string]T{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return t, nil, fmt.Errorf("make directory of builds: %w", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return t, nil, fmt.Errorf("read builds: %w", err)
	}
	var skipped []string
	for _, n := range names {
		key, ok := strings.CutSuffix(n.Name(), ".json")
		path := filepath.Join(dir, n.Name())
		if strings.HasSuffix(n.Name(), ".tmp") { // from an unfinished write
			os.Remove(path)
			continue
		}
		var v T
		err := errors.New("it is no record")
		if ok && aKey.MatchString(key) {
			var b []byte
			if b, err = durable.ReadFile(path, maxRecord); err == nil {
				err = json.Unmarshal(b, &v)
			}
		}
		if err != nil {
			skipped = append(skipped, fmt.Sprintf("%s: %v", path, err))
			continue
		}
		t.all[key] = v
	}
	return t, skipped, nil
}

func (t table[T]) put(key string, v T) error {
	if !aKey.MatchString(key) {
		return fmt.Errorf("write %q: that is no key", key)
	}
	b, err := json.Marshal(v)
	if err == nil && len(b) > maxRecord {
		err = fmt.Errorf("it has %d bytes, more than %d", len(b), maxRecord)
	}
	if err == nil {
		err = durable.Replace(filepath.Join(t.dir, key+".json"), b)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	t.all[key] = v
	return nil
}

func (t table[T]) remove(key string) error {
	delete(t.all, key)
	if err := os.Remove(filepath.Join(t.dir, key+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", key, err)
	}
	return nil
}
