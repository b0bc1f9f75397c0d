package idmap

import (
	"bufio"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/confine/jail"
)

// Kind is a kind of IDs.
type Kind string

const (
	Users  Kind = "uid"
	Groups Kind = "gid"
)

// Kinds returns both kinds.
func Kinds() []Kind { return []Kind{Users, Groups} }

// file returns the file with the ranges of a kind.
func (k Kind) file() string { return "/etc/sub" + string(k) }

// First returns the start of this process's range of jail.Users IDs. The real user's name or ID
// selects the line, for groups as well: subgid(5).
func First(k Kind) (uint32, error) {
	uid := strconv.Itoa(os.Getuid())
	name := uid
	if u, err := user.LookupId(uid); err == nil {
		name = u.Username
	}
	return firstOf(k.file(), name, uid)
}

// firstOf returns the start of the first sufficient range of a user.
func firstOf(path, name, uid string) (uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if first, ok := parseRange(lines.Text(), name, uid); ok {
			return first, nil
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return 0, fmt.Errorf("%s has no range of %d for %s", path, jail.Users, name)
}

// parseRange reads a line, NAME-OR-UID:FIRST:COUNT. A range with ID 0 would map root.
func parseRange(line, name, uid string) (first uint32, ok bool) {
	fields := strings.Split(strings.TrimSpace(line), ":")
	if len(fields) != 3 || fields[0] != name && fields[0] != uid {
		return 0, false
	}
	from, err := strconv.ParseUint(fields[1], 10, 32)
	n, err2 := strconv.ParseUint(fields[2], 10, 32)
	return uint32(from), err == nil && err2 == nil && from > 0 && n >= uint64(jail.Users) && from+n <= 1<<32-1
}

// Entry is a line of a map: Count IDs from Inside on are those from Outside on.
type Entry struct{ Inside, Outside, Count uint32 }

// Entries returns the map of a kind: this process's own ID becomes root, and the range becomes the
// IDs of VMs.
func Entries(k Kind) ([]Entry, error) {
	first, err := First(k)
	if err != nil {
		return nil, err
	}
	own := os.Getuid()
	if k == Groups {
		own = os.Getgid()
	}
	return []Entry{{0, uint32(own), 1}, {jail.First, first, jail.Users}}, nil
}
