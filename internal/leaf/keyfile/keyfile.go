// Package keyfile reads files with one API key or token on a line. Callers read the file before each use, so that a new
// key counts without a restart. The key is never part of an error.
package keyfile

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// maxBytes limits a file.
const maxBytes = 4096

// Read returns the key of a file: printable ASCII without spaces. Spaces around it are ignored.
func Read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(b))
	if len(b) > maxBytes || key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: want one line with a key", path)
	}
	return key, nil
}
