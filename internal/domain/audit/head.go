package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// readHead reads the head beside a log. It returns false if there is no head.
func readHead(path string) (Head, bool, error) {
	f, err := os.Open(path + headSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return Head{}, false, nil
	}
	if err != nil {
		return Head{}, false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return Head{}, false, err
	}
	var h Head
	if err := json.Unmarshal(b, &h); err != nil || !isSeq(h.Seq) || !isHash(h.Hash) {
		return Head{}, false, fmt.Errorf("%s is not the head of an audit log", path+headSuffix)
	}
	return h, true, nil
}

// writeHead replaces the head. The lines up to it must have been synced.
func writeHead(path string, h Head) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	next := path + headSuffix + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(next, path+headSuffix)
}
