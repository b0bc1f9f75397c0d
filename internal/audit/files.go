package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// headSuffix is what the head's file is called beside the log.
const headSuffix = ".head"

// rolledName is the name of a file that was rolled over.
var rolledName = regexp.MustCompile(`^[0-9]{6,12}$`)

// rolledFile is a file that is full.
type rolledFile struct {
	path   string
	number uint64 // higher: newer
}

// rolledFiles lists those of a log, oldest first.
func rolledFiles(path string) ([]rolledFile, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var all []rolledFile
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if !ok || !rolledName.MatchString(suffix) || !e.Type().IsRegular() {
			continue
		}
		n, err := strconv.ParseUint(suffix, 10, 64)
		if err == nil {
			all = append(all, rolledFile{filepath.Join(filepath.Dir(path), e.Name()), n})
		}
	}
	slices.SortFunc(all, func(a, b rolledFile) int { return int(a.number) - int(b.number) })
	return all, nil
}

// nextRolled is the name that the log's file gets when it is full.
func nextRolled(path string, all []rolledFile) string {
	n := uint64(1)
	if len(all) > 0 {
		n = all[len(all)-1].number + 1
	}
	return fmt.Sprintf("%s.%06d", path, n)
}

// Files are the paths of a log's files, oldest first, the one that is written to last.
func Files(path string) ([]string, error) {
	all, err := rolledFiles(path)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range all {
		out = append(out, f.path)
	}
	if _, err := os.Stat(path); err == nil {
		out = append(out, path)
	} else if !errors.Is(err, fs.ErrNotExist) || len(out) == 0 {
		return nil, err
	}
	return out, nil
}
