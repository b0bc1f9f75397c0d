// Package guestpath turns a path as a client writes it into an absolute path
// in the guest. It looks at no file. The trap: relative means relative to the
// user's home, whatever the working folder is, which is what E2B's clients
// expect.
package guestpath

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// maxLen is Linux's PATH_MAX.
const maxLen = 4096

// Resolve applies the rules: empty is workdir (or home if there is none), ~
// and ~/x are below home, relative is below home, absolute is itself.
func Resolve(path, home, workdir string) (string, error) {
	if len(path) > maxLen {
		return "", fmt.Errorf("path is %d bytes, more than %d", len(path), maxLen)
	}
	if strings.IndexByte(path, 0) >= 0 {
		return "", errors.New("path holds a zero byte")
	}
	switch {
	case path == "" && workdir != "":
		path = workdir
	case path == "", path == "~":
		path = home
	case strings.HasPrefix(path, "~/"):
		path = filepath.Join(home, path[2:])
	case strings.HasPrefix(path, "~"):
		return "", fmt.Errorf("path '%s': another user's home is not supported", path)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join("/", home, path)
	}
	return filepath.Clean(path), nil
}
