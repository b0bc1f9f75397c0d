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

// errOldestGone: the log removed a file that was to be read, being the oldest.
var errOldestGone = errors.New("the log removed its oldest files while it was read")

// walk hands over the files of a log that are newer than the one with the number done (0: all), oldest
// first and open; each closes them. It misses none and gives none twice though the log is rolled over
// meanwhile: what is full changes no more, and a file is the current one, which comes last, only if none
// was full when it was open already. It fails with errOldestGone, or with fs.ErrNotExist if there is no
// such log.
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
		if err != nil || !more { // if there is none: it is between its two names, and the next is empty
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

// isNewer reports whether a file is full that is newer than the one with that number.
func isNewer(path string, number uint64) (bool, error) {
	full, err := rolledFiles(path)
	return len(full) > 0 && full[len(full)-1].number > number, err
}
