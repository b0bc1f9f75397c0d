// Package volumewire has the messages about files of a mounted volume. The host asks the guest's agent, which
// acts as root but never leaves the directory of the mount: links that lead out of it are refused. Answers of a
// guest are checked by the host before any other use.
package volumewire

import (
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

// Plain routes of the agent. Each takes the mount point and a path below it in the query (QueryRoot, QueryPath).
const (
	Path        = "/volume-files" // DELETE removes a file, or a directory with its content
	StatPath    = Path + "/stat"  // GET an Entry; PATCH changes owner and mode, and returns the Entry
	ListPath    = Path + "/list"  // GET the entries of a directory
	DirPath     = Path + "/dir"   // POST makes a directory and returns its Entry
	ContentPath = Path + "/content"
	// Header is in each answer about files of volumes. An agent without it has no such routes.
	Header = "Forkd-Volume-Files"
)

// Names in the query.
const (
	QueryRoot  = "root"
	QueryPath  = "path"
	QueryDepth = "depth" // levels of a list, 1 to MaxDepth
	QueryUID   = "uid"
	QueryGID   = "gid"
	QueryMode  = "mode"  // octal permissions
	QueryForce = "force" // true makes missing parents, and accepts a directory that exists
)

// Limits of messages.
const (
	MaxPath      = 4095     // of a path in bytes, as in Linux
	MaxDepth     = 64       // of a list
	MaxEntries   = 10_000   // of a list
	MaxListBytes = 16 << 20 // of a list's answer
	maxName      = 255 * 3  // a name's invalid bytes become three bytes each
)

// Kind is the kind of an entry.
type Kind string

// Kinds.
const (
	File      Kind = "file"
	Directory Kind = "directory"
	Symlink   Kind = "symlink"
	Other     Kind = "unknown" // a socket, a pipe or a device
)

// Entry describes a file. A link is described itself, not its target.
type Entry struct {
	Name   string `json:"name"` // last element of Path
	Path   string `json:"path"` // absolute within the volume
	Kind   Kind   `json:"kind"`
	Size   int64  `json:"size"` // in bytes
	Mode   uint32 `json:"mode"` // permissions with the set-ID and sticky bits
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
	Atime  int64  `json:"atime_ms"` // milliseconds since 1970, as are the others
	Mtime  int64  `json:"mtime_ms"`
	Ctime  int64  `json:"ctime_ms"`
	Target string `json:"target,omitempty"` // of a link
}

// Attrs are the owner and the mode of a file. Nil leaves one as it is, or as a new file has it.
type Attrs struct {
	UID, GID *uint32
	Mode     *uint32 // at most MaxMode
}

// MaxMode has all bits of a mode.
const MaxMode = 0o7777

// Owner of new files without another one: the first user of an image.
const DefaultID = 1000

// ParseEntry reads a guest's answer about one file.
func ParseEntry(b []byte) (Entry, error) {
	var e Entry
	if len(b) > 64<<10 {
		return Entry{}, agentproto.Violationf("the description of a file has more than %d bytes", 64<<10)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return Entry{}, agentproto.Violationf("the description of a file is no JSON of its form")
	}
	return e, e.check()
}

// ParseList reads a guest's answer about a directory.
func ParseList(b []byte) ([]Entry, error) {
	var all []Entry
	if len(b) > MaxListBytes {
		return nil, agentproto.Violationf("a list of files has more than %d bytes", MaxListBytes)
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, agentproto.Violationf("a list of files is no JSON of its form")
	}
	if len(all) > MaxEntries {
		return nil, agentproto.Violationf("a list of %d files, want at most %d", len(all), MaxEntries)
	}
	for _, e := range all {
		if err := e.check(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// maxTime is the last millisecond of the year 9999, which JSON's times can have.
const maxTime = 253402300799999

func (e Entry) check() error {
	switch e.Kind {
	case File, Directory, Symlink, Other:
	default:
		return agentproto.Violationf("a file of an unknown kind")
	}
	switch {
	case !utf8.ValidString(e.Name) || len(e.Name) > maxName:
		return agentproto.Violationf("a file's name of %d bytes", len(e.Name))
	case !utf8.ValidString(e.Path) || len(e.Path) > 3*MaxPath || !strings.HasPrefix(e.Path, "/"),
		!utf8.ValidString(e.Target) || len(e.Target) > 3*MaxPath:
		return agentproto.Violationf("a file's path of %d bytes", max(len(e.Path), len(e.Target)))
	case e.Size < 0 || e.Mode > MaxMode || e.UID == math.MaxUint32 || e.GID == math.MaxUint32:
		return agentproto.Violationf("a file of impossible size, mode or owner")
	}
	for _, at := range []int64{e.Atime, e.Mtime, e.Ctime} {
		if at < -maxTime || at > maxTime {
			return agentproto.Violationf("a file of an impossible time")
		}
	}
	return nil
}
