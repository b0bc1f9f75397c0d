package guestdiff

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// words describes changes: the path, and for each guest the size, or a dash.
func words(c Changes) (out []string) {
	size := func(e *Entry) string {
		if e == nil {
			return "-"
		}
		return fmt.Sprint(e.Size)
	}
	for _, t := range c.Paths {
		w := fmt.Sprintf("%s %s %s %s", t.Path, size(t.Base), size(t.Ours), size(t.Theirs))
		if t.OursChanged {
			w += " ours"
		}
		if t.TheirsChanged {
			w += " theirs"
		}
		out = append(out, w)
	}
	return out
}

func TestCompareThree(t *testing.T) {
	below := func(f *agentv1.InventoryFile, size int64) *agentv1.InventoryFile {
		f.Below = file(string(f.Path), size)
		return f
	}
	gone := func(path string, size int64) *agentv1.InventoryFile {
		return below(&agentv1.InventoryFile{Path: []byte(path), Gone: true}, size)
	}
	side := func(files ...*agentv1.InventoryFile) *parts {
		return &parts{{Files: files, ChangesOnly: true}, {End: &agentv1.InventoryEnd{}, ChangesOnly: true}}
	}
	for name, c := range map[string]struct {
		base, ours, theirs *parts
		want               string
	}{
		"whole lists": {guest([]*agentv1.InventoryFile{file("/a", 1), file("/b", 1), file("/c", 1)}, nil, nil),
			guest([]*agentv1.InventoryFile{file("/a", 2), file("/b", 1)}, nil, nil),
			guest([]*agentv1.InventoryFile{file("/a", 3), file("/b", 1), file("/c", 1), file("/d", 1)}, nil, nil),
			"/a 1 2 3 ours theirs, /c 1 - 1 ours, /d - - 1 theirs"},
		"changes of an image": {side(below(file("/a", 5), 1), file("/new", 1)),
			side(below(file("/a", 5), 1), below(file("/b", 2), 1), file("/new", 1)),
			side(gone("/b", 1), gone("/c", 7)),
			"/a 5 5 1 theirs, /b 1 2 - ours theirs, /c 7 7 - theirs, /new 1 1 - theirs"},
		"nothing": {side(), side(), side(), ""},
		"no name": {side(), side(file("/\xff", 1)), side(file("/z", 1)), "/z - - 1 theirs"},
	} {
		got, err := CompareThree(t.Context(), c.base, c.ours, c.theirs, 10, nil)
		if err != nil || strings.Join(words(got), ", ") != c.want || !got.Complete || got.Unnamed != strings.Count(name, "no name") {
			t.Errorf("%s: %q, %v; want %s", name, words(got), err, c.want)
		}
	}
	_, err := CompareThree(t.Context(), side(), side(file("/a", 1), file("/b", 1)), side(), 1, nil)
	if !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
	_, err = CompareThree(t.Context(), side(), guest(nil, nil, nil), side(), 1, nil)
	if !errors.Is(err, ErrGuest) {
		t.Error(err)
	}
	_, err = CompareThree(t.Context(), side(), side(), side(file("/a", 1)), 1, func(n int) bool { return n < 100 })
	if !errors.Is(err, ErrNoRoom) {
		t.Error(err)
	}
}
