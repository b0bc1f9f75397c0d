// Package guestpath converts a client's path into an absolute path in the guest. It does not access
// files. A relative path is relative to the user's home and not to the working directory, as E2B's
// clients expect.
package guestpath

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// maxLen is Linux's PATH_MAX.
const maxLen = 4096

// Resolve returns the absolute path. An empty path means workdir, or home if workdir is empty. ~
// and ~/x are below home, and so are relative paths.
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
