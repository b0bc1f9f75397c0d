package receipt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// name holds the parts of a file's name. It is the index by which List finds its files.
type name struct {
	id    string
	kind  Kind
	of    string
	owner string // a tenant; empty for the operator
	// unowned is set for an unreadable file of an earlier version, whose name has no owner.
	unowned bool
}

const tempPrefix = ".new-"

// ofOperator stands for the operator in a file's name. No tenant has this name.
const ofOperator = "-"

// checkOwner rejects an owner that cannot be part of a file's name.
func checkOwner(owner string) error {
	if owner != "" && (owner == ofOperator || !subjectPattern.MatchString(owner)) {
		return fmt.Errorf("%w: bad name of its owner", ErrFormat)
	}
	return nil
}

func (n name) file() string {
	owner := n.owner
	switch {
	case n.unowned:
		return fmt.Sprintf("%s.%s.%s.json", n.id, n.kind, n.of)
	case owner == "":
		owner = ofOperator
	}
	return fmt.Sprintf("%s.%s.%s.%s.json", n.id, n.kind, n.of, owner)
}

func parseName(file string) (name, bool) {
	base, isJSON := strings.CutSuffix(file, ".json")
	f := strings.Split(base, ".")
	if !isJSON || len(f) != 3 && len(f) != 4 || !idPattern.MatchString(f[0]) || !subjectPattern.MatchString(f[2]) {
		return name{}, false
	}
	n := name{id: f[0], kind: Kind(f[1]), of: f[2], unowned: len(f) == 3}
	if !n.unowned && f[3] != ofOperator {
		n.owner = f[3]
		if n.owner == "" || checkOwner(n.owner) != nil {
			return name{}, false
		}
	}
	return n, n.kind == OfSandbox || n.kind == OfSnapshot
}

// nameOwners renames files of an earlier version to include the owner in their names. Unreadable files keep their
// names.
func (s *Store) nameOwners() error {
	names, err := s.names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if !n.unowned {
			continue
		}
		r, err := s.read(n, nil)
		if err != nil || checkOwner(r.Owner) != nil {
			continue
		}
		to := n
		to.owner, to.unowned = r.Owner, false
		err = os.Rename(filepath.Join(s.dir, n.file()), filepath.Join(s.dir, to.file()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("open receipts: %w", err)
		}
	}
	return nil
}

// shareOf returns how many receipts each owner can keep, so that all owners together keep at most count. Owners
// with fewer keep all of theirs, and the others have equal shares of the rest.
func shareOf(names []name, count int) int {
	owned := map[string]int{}
	for _, n := range names {
		owned[n.owner]++
	}
	var sizes []int
	for _, n := range owned {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	for i, n := range sizes {
		share := count / (len(sizes) - i)
		if n > share {
			return share
		}
		count -= n
	}
	return len(names)
}

// at returns the time when the receipt was put.
func (n name) at() time.Time {
	var us int64
	_, _ = fmt.Sscanf(n.id[1:15], "%x", &us) // the pattern was matched before
	return time.UnixMicro(us)
}
