package merge

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/guest/guestdiff"
	"github.com/forkd/forkd/internal/leaf/guestdelta"
)

// plan decides what a merge changes.
type plan struct {
	sides *guests
	req   Request
	res   Result
	steps []step
	// blocked is a path that is no folder in ours, but has entries in theirs. It ends with a slash.
	blocked string
}

// step changes one path of ours.
type step struct {
	path   string
	old    *guestdiff.Entry // what ours has there; nil: nothing
	remove bool             // remove old first
	made   *guestdiff.Entry // what ours is to have there; nil: nothing
	// content is the content of a file. If keep is set, the file keeps its own.
	content content
	text    string // the merged text
}

// content is the source of a file's content.
type content uint8

const (
	fromTheirs content = iota
	merged
	kept
)

// judgeAll decides all paths. Then it drops deletions of folders that are still in use.
func (p *plan) judgeAll(ctx context.Context, found guestdiff.Changes) error {
	if found.Unnamed > 0 {
		p.skip("", fmt.Sprintf("%d names are not UTF-8", found.Unnamed))
	}
	for _, t := range found.Paths {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := p.judge(ctx, t); err != nil {
			return err
		}
	}
	p.settleFolders(found.Paths)
	for _, s := range p.steps {
		p.res.Changes = append(p.res.Changes, Change{s.path, s.action()})
	}
	return nil
}

func (s step) action() string {
	switch {
	case s.made == nil:
		return "deleted"
	case s.old == nil:
		return "added"
	case s.content == merged:
		return "merged"
	}
	return "modified"
}

func (p *plan) skip(path, why string) { p.res.Skipped = append(p.res.Skipped, Skipped{path, why}) }

// judge decides one path.
func (p *plan) judge(ctx context.Context, t guestdiff.Three) error {
	switch {
	case !t.TheirsChanged:
		p.noteBlock(t, nil)
		return nil
	case own(t.Path):
		return nil
	case special(t.Base) || special(t.Ours) || special(t.Theirs):
		p.skip(t.Path, "a socket, a pipe or a device")
		return nil
	case strings.ContainsRune(target(t.Theirs), '\uFFFD'):
		p.skip(t.Path, "the link's text is not UTF-8")
		return nil
	case p.blocked != "" && strings.HasPrefix(t.Path, p.blocked) && t.Theirs != nil:
		p.conflict(t, "file/directory", fmt.Sprintf("%s is no folder in ours", strings.TrimSuffix(p.blocked, "/")), false)
		return nil
	case !t.OursChanged:
		p.take(t)
		return nil
	case t.Ours == nil && t.Theirs == nil:
		return nil
	case t.Ours == nil || t.Theirs == nil:
		p.oneSided(t)
		return nil
	case kind(t.Ours) != kind(t.Theirs):
		p.conflict(t, kindOr(t, "type"), fmt.Sprintf("a %s in ours, a %s in theirs", word(t.Ours), word(t.Theirs)),
			!t.Ours.Mode.IsDir())
		return nil
	}
	return p.bothChanged(ctx, t)
}

// noteBlock remembers a path that is no folder in ours although theirs has a folder there. done is
// the entry that ours gets.
func (p *plan) noteBlock(t guestdiff.Three, done *guestdiff.Entry) {
	if done == nil {
		done = t.Ours
	}
	if done != nil && !done.Mode.IsDir() && t.Theirs != nil && t.Theirs.Mode.IsDir() {
		p.blocked = t.Path + "/"
	}
}

// take takes the version of theirs.
func (p *plan) take(t guestdiff.Three) {
	s := step{path: t.Path, old: t.Ours, made: t.Theirs}
	s.remove = t.Ours != nil && (t.Theirs == nil || kind(t.Ours) != kind(t.Theirs))
	p.steps = append(p.steps, s)
}

// conflict records a conflict, and its resolution. One that theirs cannot win stays if the caller
// wants theirs.
func (p *plan) conflict(t guestdiff.Three, kind, text string, theirsCan bool) {
	side, ok := p.req.Paths[t.Path]
	if !ok {
		side = p.req.Resolve
	}
	if side == Theirs && !theirsCan {
		side = ""
		text += "; only ours can be kept"
	}
	c := Conflict{Path: t.Path, Kind: kind, Text: fmt.Sprintf("CONFLICT (%s): %s: %s", kind, t.Path, text), Resolved: side}
	p.res.Conflicts = append(p.res.Conflicts, c)
	if side == Theirs {
		p.take(t)
		return
	}
	p.noteBlock(t, nil)
}

// oneSided decides a path that one side has deleted. Folders live as long as they have entries.
func (p *plan) oneSided(t guestdiff.Three) {
	gone, left := "deleted in theirs and changed in ours", t.Ours
	if t.Ours == nil {
		gone, left = "deleted in ours and changed in theirs", t.Theirs
	}
	if left.Mode.IsDir() && t.Base != nil && t.Base.Mode.IsDir() {
		return
	}
	p.conflict(t, "modify/delete", gone, true)
}

// bothChanged decides a path that both sides have, with the same type.
func (p *plan) bothChanged(ctx context.Context, t guestdiff.Three) error {
	s := step{path: t.Path, old: t.Ours, content: kept}
	made := *t.Ours
	s.made = &made
	switch {
	case t.Ours.Mode.IsRegular():
		ok, err := p.mergeContent(ctx, t, &s)
		if err != nil || !ok {
			return err
		}
	case t.Ours.Target != t.Theirs.Target:
		if t.Base != nil && t.Base.Target == t.Ours.Target && kind(t.Base) == kind(t.Ours) {
			s.content, made.Target = fromTheirs, t.Theirs.Target
		} else if t.Base == nil || t.Base.Target != t.Theirs.Target || kind(t.Base) != kind(t.Ours) {
			p.conflict(t, kindOr(t, "content"), "links to different targets", true)
			return nil
		}
	}
	mode, okMode := three(base(t).Mode, t.Ours.Mode, t.Theirs.Mode)
	owner, okOwner := three(ownerOf(base(t)), ownerOf(t.Ours), ownerOf(t.Theirs))
	switch {
	case !okMode:
		p.conflict(t, kindOr(t, "mode"), fmt.Sprintf("%s in ours, %s in theirs", t.Ours.Mode, t.Theirs.Mode), true)
		return nil
	case !okOwner:
		p.conflict(t, kindOr(t, "owner"), fmt.Sprintf("%v in ours, %v in theirs", ownerOf(t.Ours), ownerOf(t.Theirs)), true)
		return nil
	}
	made.Mode, made.UID, made.GID = mode, owner[0], owner[1]
	if s.content != kept || mode != t.Ours.Mode || owner != ownerOf(t.Ours) {
		p.steps = append(p.steps, s)
	}
	return nil
}

// base returns the ancestor's entry. A path that both sides have added has none, and then each
// difference is a conflict.
func base(t guestdiff.Three) *guestdiff.Entry {
	if t.Base == nil {
		return &guestdiff.Entry{File: guestdelta.File{Mode: fs.ModeIrregular}, UID: ^uint32(0), GID: ^uint32(0)}
	}
	return t.Base
}

// three merges one value.
func three[T comparable](base, ours, theirs T) (T, bool) {
	switch {
	case ours == theirs, theirs == base:
		return ours, true
	case ours == base:
		return theirs, true
	}
	return ours, false
}

func ownerOf(e *guestdiff.Entry) [2]uint32 { return [2]uint32{e.UID, e.GID} }

// kindOr names a conflict. One about a path without an ancestor is always add/add.
func kindOr(t guestdiff.Three, kind string) string {
	if t.Base == nil {
		return "add/add"
	}
	return kind
}

func kind(e *guestdiff.Entry) fs.FileMode { return e.Mode.Type() }

func word(e *guestdiff.Entry) string {
	switch {
	case e.Mode.IsDir():
		return "folder"
	case e.Mode&fs.ModeSymlink != 0:
		return "link"
	}
	return "file"
}

func target(e *guestdiff.Entry) string {
	if e == nil {
		return ""
	}
	return e.Target
}

// special reports whether an entry is neither a file, a folder nor a link.
func special(e *guestdiff.Entry) bool {
	return e != nil && !e.Mode.IsRegular() && !e.Mode.IsDir() && kind(e) != fs.ModeSymlink
}

// own reports whether a path is a part of a sandbox's identity.
func own(name string) bool {
	switch name {
	case "/etc/hostname", "/etc/hosts", "/etc/machine-id", "/etc/resolv.conf", "/var/lib/dbus/machine-id":
		return true
	}
	dir, file := path.Split(name)
	return dir == "/etc/ssh/" && strings.HasPrefix(file, "ssh_host_")
}

// settleFolders keeps folders of ours that still have entries: a deletion is dropped, and a
// replacement is a conflict.
func (p *plan) settleFolders(all []guestdiff.Three) {
	alive := map[string]bool{} // folders with an entry that stays
	gone := map[string]bool{}
	for _, s := range p.steps {
		gone[s.path] = s.made == nil
	}
	for _, t := range all {
		stays := t.Ours != nil
		if g, ok := gone[t.Path]; ok {
			stays = !g
		}
		if stays {
			for dir := path.Dir(t.Path); dir != "/" && !alive[dir]; dir = path.Dir(dir) {
				alive[dir] = true
			}
		}
	}
	p.steps = slices.DeleteFunc(p.steps, func(s step) bool {
		if !s.remove || !s.old.Mode.IsDir() || !alive[s.path] {
			return false
		}
		if s.made != nil {
			p.conflict(guestdiff.Three{Path: s.path, Base: s.old, Ours: s.old, Theirs: s.made}, "file/directory",
				"a folder with entries in ours, no folder in theirs", false)
		}
		return true
	})
}
