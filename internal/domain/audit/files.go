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

// headSuffix is appended to the log's name for the head's file.
const headSuffix = ".head"

// rolledName matches the suffix of a rolled file.
var rolledName = regexp.MustCompile(`^[0-9]{6,12}$`)

// rolledFile is a full file.
type rolledFile struct {
	path   string
	number uint64 // higher is newer
}

// rolledFiles returns a log's full files, oldest first.
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

// nextRolled returns the log file's next name after it is full.
func nextRolled(path string, all []rolledFile) string {
	n := uint64(1)
	if len(all) > 0 {
		n = all[len(all)-1].number + 1
	}
	return fmt.Sprintf("%s.%06d", path, n)
}

// errOldestGone is returned if the log removed its oldest file before it was read.
var errOldestGone = errors.New("the log removed its oldest files while it was read")

// walk calls each with the files of a log that are newer than the file numbered done (0 for all files), oldest
// first and open. each closes its file. walk neither misses nor repeats a file, even if the log is rolled over
// meanwhile: a full file no longer changes, and the current file, which comes last, is used only if no newer full
// file has appeared after it was opened. walk returns errOldestGone, or fs.ErrNotExist if there is no such log.
func walk(path string, done uint64, each func(f *os.File, current bool) error) error {
	for {
		full, err := rolledFiles(path)
		if err != nil {
			return err
		}
		if done, err = walkFull(full, done, each); err != nil {
			return err
		}
		current, missing := os.Open(path)
		if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
			return missing
		}
		more, err := isNewer(path, done)
		switch {
		case missing == nil && !more && err == nil:
			return each(current, true)
		case missing == nil:
			current.Close()
		case !more && done == 0 && err == nil:
			return missing
		}
		if err != nil || !more { // a missing file is between its two names, and the next one is empty
			return err
		}
	}
}

func walkFull(full []rolledFile, done uint64, each func(f *os.File, current bool) error) (uint64, error) {
	for _, r := range full {
		if r.number <= done {
			continue
		}
		f, err := os.Open(r.path)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errOldestGone, err)
		}
		if err != nil {
			return done, err
		}
		if err := each(f, false); err != nil {
			return done, err
		}
		done = r.number
	}
	return done, nil
}

// isNewer reports whether there is a full file with a higher number.
func isNewer(path string, number uint64) (bool, error) {
	full, err := rolledFiles(path)
	return len(full) > 0 && full[len(full)-1].number > number, err
}
