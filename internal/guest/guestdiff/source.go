package guestdiff

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/guestdelta"
)

// Source returns the parts of one guest's inventory. Next returns io.EOF at the end.
type Source interface {
	Next() (*agentv1.InventoryPart, error)
}

// Limits of data from a guest.
const (
	maxFiles     = 2_000_000
	maxProcesses = 10_000
	maxPackages  = 20_000
	maxPath      = 4096
	maxTarget    = 4096
	maxText      = 1024 // of names, versions, arguments
)

// ErrGuest wraps all errors about the contents of an inventory.
var ErrGuest = errors.New("the guest's account of itself is not usable")

var errTooMuch = fmt.Errorf("%w: it is too large", ErrGuest)

// reader checks one stream and returns its files one by one.
type reader struct {
	from  Source
	part  []*agentv1.InventoryFile // files of the part that are not returned yet
	last  []byte                   // path
	files int
	// changesOnly reports that unchanged files of the image are left out.
	changesOnly bool
	begun       bool // a part was read
	processes   []process
	packages    []guestdelta.Package
	end         *agentv1.InventoryEnd
	keep        Keep
	held        int // bytes kept for the part
}

func (r *reader) ask(n int) error {
	if r.keep == nil || r.keep(n) {
		return nil
	}
	return ErrNoRoom
}

// drop returns the part's bytes.
func (r *reader) drop() {
	if r.keep != nil && r.held > 0 {
		r.keep(-r.held)
	}
	r.held = 0
}

// partCost is the memory per byte of a part: as received, and decoded.
const partCost = 2

// file returns the next file, or nil after the last.
func (r *reader) file() (*agentv1.InventoryFile, error) {
	for len(r.part) == 0 {
		if len(r.processes) > 0 || len(r.packages) > 0 || r.end != nil {
			return nil, nil
		}
		if err := r.next(); err != nil {
			return nil, err
		}
	}
	f := r.part[0]
	r.part = r.part[1:]
	r.files++
	switch {
	case f == nil, len(f.Path) < 2, f.Path[0] != '/', len(f.Path) > maxPath, len(f.Target) > maxTarget:
		return nil, fmt.Errorf("%w: a file with a bad path", ErrGuest)
	case (f.Gone || f.Below != nil) && !r.changesOnly, f.Below != nil &&
		(string(f.Below.Path) != string(f.Path) || f.Below.Gone || len(f.Below.Target) > maxTarget):
		return nil, fmt.Errorf("%w: %.80q is not what it can be", ErrGuest, f.Path)
	case r.last != nil && comparePaths(r.last, f.Path) >= 0:
		return nil, fmt.Errorf("%w: %.80q comes after %.80q", ErrGuest, f.Path, r.last)
	}
	r.last = f.Path
	return f, nil
}

// rest reads to the end of the stream and skips the remaining files.
func (r *reader) rest() error {
	for r.end == nil {
		if err := r.next(); err != nil {
			return err
		}
		r.part = nil
	}
	return nil
}

func (r *reader) next() error {
	p, err := r.from.Next()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it breaks off", ErrGuest)
	}
	if err != nil {
		return err
	}
	r.drop()
	n := partCost * proto.Size(p)
	if err := r.ask(n); err != nil {
		return err
	}
	r.held = n
	if len(p.Files) > 0 && (len(r.processes) > 0 || len(r.packages) > 0) || r.end != nil ||
		r.begun && p.ChangesOnly != r.changesOnly {
		return fmt.Errorf("%w: its parts are out of order", ErrGuest)
	}
	r.part, r.end, r.changesOnly, r.begun = p.Files, p.End, p.ChangesOnly, true
	// Convert immediately: a message may carry megabytes in unknown fields.
	for _, m := range p.Processes {
		if len(r.processes) == maxProcesses || max(len(m.GetArgs()), len(m.GetName())) > maxText {
			return errTooMuch
		}
		args := 1 + bytes.Count(m.GetArgs(), []byte{0})
		if err := r.ask(256 + len(m.GetName()) + len(m.GetArgs()) + 32*args); err != nil {
			return err
		}
		r.processes = append(r.processes, process{key(m), processOf(m)})
	}
	for _, m := range p.Packages {
		if len(r.packages) == maxPackages || max(len(m.GetName()), len(m.GetVersion()), len(m.GetArchitecture())) > maxText {
			return errTooMuch
		}
		if err := r.ask(128 + len(m.GetName()) + len(m.GetVersion()) + len(m.GetArchitecture())); err != nil {
			return err
		}
		r.packages = append(r.packages,
			guestdelta.Package{Name: m.GetName(), Version: m.GetVersion(), Architecture: m.GetArchitecture()})
	}
	return nil
}

// comparePaths compares in the order of a walk that visits a directory's entries by name: "/" is
// lower than any byte of a name.
func comparePaths(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		switch {
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		}
		return int(a[i]) - int(b[i])
	}
	return len(a) - len(b)
}

// text converts bytes of a guest into valid UTF-8 of limited length.
func text(b []byte, most int) string {
	return string(bytes.ToValidUTF8(b[:min(len(b), most)], []byte("\uFFFD")))
}
