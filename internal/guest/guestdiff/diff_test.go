package guestdiff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/guestdelta"
)

// parts is a recorded stream.
type parts []*agentv1.InventoryPart

func (p *parts) Next() (*agentv1.InventoryPart, error) {
	if len(*p) == 0 {
		return nil, io.EOF
	}
	next := (*p)[0]
	*p = (*p)[1:]
	return next, nil
}

func file(path string, size int64) *agentv1.InventoryFile {
	return &agentv1.InventoryFile{Path: []byte(path), Mode: 0o100644, Size: size}
}

// guest returns a stream with one part per kind.
func guest(files []*agentv1.InventoryFile, procs []*agentv1.InventoryProcess, pkgs []*agentv1.InventoryPackage) *parts {
	p := parts{}
	for _, f := range files {
		p = append(p, &agentv1.InventoryPart{Files: []*agentv1.InventoryFile{f}})
	}
	return addEnd(append(p, &agentv1.InventoryPart{Processes: procs}, &agentv1.InventoryPart{Packages: pkgs}))
}

func addEnd(p parts) *parts {
	p = append(p, &agentv1.InventoryPart{End: &agentv1.InventoryEnd{}})
	return &p
}

func TestWhatDiffers(t *testing.T) {
	folder := func(path string, mtime int64) *agentv1.InventoryFile {
		return &agentv1.InventoryFile{Path: []byte(path), Mode: 0o040755, MtimeNs: mtime, Size: mtime}
	}
	suid := file("/z", 1)
	suid.Mode = 0o104755
	proc := func(pid uint32, start, anon uint64) *agentv1.InventoryProcess {
		return &agentv1.InventoryProcess{Pid: pid, StartTicks: start, AnonKib: anon, Name: []byte("p\xff"), Args: []byte("a\x00b")}
	}
	pkg := func(name, version string) *agentv1.InventoryPackage {
		return &agentv1.InventoryPackage{Name: name, Version: version, Architecture: "amd64"}
	}
	a := guest(
		[]*agentv1.InventoryFile{folder("/a", 1), file("/a/x", 1), file("/a-b", 1), file("/gone", 7), file("/z", 1)},
		[]*agentv1.InventoryProcess{proc(1, 3, 10), proc(7, 5, 10), proc(8, 5, 10), proc(9, 5, 10)},
		[]*agentv1.InventoryPackage{pkg("old", "1"), pkg("same", "1"), pkg("up", "1")})
	b := guest(
		[]*agentv1.InventoryFile{folder("/a", 2), file("/a/new", 3), file("/a/x", 2), file("/a-b", 1), suid},
		[]*agentv1.InventoryProcess{proc(1, 4, 11), proc(7, 6, 10), proc(8, 5, 10), proc(9, 5, 99)},
		[]*agentv1.InventoryPackage{pkg("fresh", "1"), pkg("same", "1"), pkg("up", "2")})
	d, err := Compare(t.Context(), a, b, DefaultLimit, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := d.Files
	if f.Counts != (guestdelta.Counts{Added: 1, Removed: 1, Changed: 2}) || f.Added[0].Path != "/a/new" || f.Added[0].Size != 3 || f.Removed[0].Path != "/gone" || f.Compared != 6 || !f.Complete {
		t.Errorf("files: %+v", f)
	}
	if c := f.Changed; c[0].After.Path != "/a/x" || !slices.Equal(c[0].What, []string{"size"}) || c[1].After.Mode != fs.ModeSetuid|0o755 || !slices.Equal(c[1].What, []string{"mode"}) {
		t.Errorf("changed: %+v", c)
	}
	p := d.Processes
	if p.Counts != (guestdelta.Counts{Added: 1, Removed: 1, Changed: 2}) || p.Started[0].PID != 7 || p.Ended[0].PID != 7 || p.Changed[0].PID != 9 || p.Changed[0].Before.Anon != 10 || p.Changed[1].PID != 1 {
		t.Errorf("processes: %+v", p)
	}
	if got := p.Started[0]; got.Name != "p\uFFFD" || !slices.Equal(got.Args, []string{"a", "b"}) {
		t.Errorf("process: %+v", got)
	}
	if k := d.Packages; k.Counts != (guestdelta.Counts{Added: 1, Removed: 1, Changed: 1}) || k.Added[0].Name != "fresh" || k.Removed[0].Name != "old" || k.Changed[0].Before != "1" || k.Changed[0].Version != "2" {
		t.Errorf("packages: %+v", k)
	}
}

// If one guest does not list a file, the other's entry contains the image's version.
func TestGuestsThatTellChangesOnly(t *testing.T) {
	changed := func(f, below *agentv1.InventoryFile) *agentv1.InventoryFile { f.Below = below; return f }
	gone := func(path string) *agentv1.InventoryFile {
		return &agentv1.InventoryFile{Path: []byte(path), Gone: true, Below: file(path, 1)}
	}
	side := func(files ...*agentv1.InventoryFile) *parts {
		p := parts{{Files: files, ChangesOnly: true}, {End: &agentv1.InventoryEnd{}, ChangesOnly: true}}
		return &p
	}
	before := side(file("/mine", 2), changed(file("/same", 9), file("/same", 1)), gone("/torn"), gone("/void"), changed(file("/was", 5), file("/was", 1)))
	after := side(changed(file("/fresh", 3), file("/fresh", 1)), gone("/lost"), changed(file("/same", 9), file("/same", 1)), changed(file("/torn", 4), file("/torn", 1)), gone("/void"), file("/your", 2))
	d, err := Compare(t.Context(), before, after, 10, nil)
	if err != nil {
		t.Fatal(err)
	}
	paths := func(list []guestdelta.File) (out []string) {
		for _, f := range list {
			out = append(out, f.Path)
		}
		return out
	}
	f := d.Files
	if got := paths(f.Added); !slices.Equal(got, []string{"/torn", "/your"}) {
		t.Errorf("added %q", got)
	}
	if got := paths(f.Removed); !slices.Equal(got, []string{"/lost", "/mine"}) {
		t.Errorf("removed %q", got)
	}
	if c := f.Changed; len(c) != 2 || c[0].After.Path != "/fresh" || c[0].Before.Size != 1 || c[1].After.Path != "/was" || c[1].Before.Size != 5 || c[1].After.Size != 1 {
		t.Errorf("changed %+v", c)
	}
}

func TestListsAreCutAndCountsAreNot(t *testing.T) {
	var many []*agentv1.InventoryFile
	for c := 'a'; c <= 'z'; c++ {
		many = append(many, file("/"+string(c), 1))
	}
	d, err := Compare(t.Context(), guest(nil, nil, nil), guest(many, nil, nil), 3, nil)
	if err != nil || d.Files.Counts.Added != 26 || len(d.Files.Added) != 3 {
		t.Errorf("%+v, %v", d.Files, err)
	}
}

func TestWhatCouldNotBeRead(t *testing.T) {
	end := &agentv1.InventoryEnd{Unreadable: 1, ProcessesCut: 1, PackagesCut: 1}
	d, err := Compare(t.Context(), guest(nil, nil, nil), &parts{{End: end}}, 3, nil)
	if err != nil || d.Files.Complete || d.Processes.Complete || d.Packages.Complete {
		t.Errorf("%+v, %v", d, err)
	}
}

// A guest may send anything. Impossible data is an error and has no other effect.
func TestAGuestThatLies(t *testing.T) {
	files := func(f ...*agentv1.InventoryFile) parts { return parts{{Files: f}} }
	for name, lie := range map[string]*parts{
		"out of order":            addEnd(files(file("/b", 1), file("/a", 1))),
		"twice":                   addEnd(files(file("/a", 1), file("/a", 1))),
		"a folder after its kin":  addEnd(files(file("/a-b", 1), file("/a/x", 1))),
		"no path":                 addEnd(files(file("", 1))),
		"a relative path":         addEnd(files(file("ab", 1))),
		"a path that is too long": addEnd(files(file("/"+strings.Repeat("x", maxPath), 1))),
		"no end":                  {{Files: []*agentv1.InventoryFile{file("/a", 1)}}},
		"files after processes":   addEnd(parts{{Processes: []*agentv1.InventoryProcess{{Pid: 1}}}, {Files: []*agentv1.InventoryFile{file("/a", 1)}}}),
		"long arguments":          addEnd(parts{{Processes: []*agentv1.InventoryProcess{{Args: make([]byte, maxText+1)}}}}),
		"a long version":          addEnd(parts{{Packages: []*agentv1.InventoryPackage{{Version: strings.Repeat("x", maxText+1)}}}}),
		"gone where all is told":  addEnd(files(&agentv1.InventoryFile{Path: []byte("/a"), Gone: true})),
		"changes only":            addEnd(parts{{Files: []*agentv1.InventoryFile{file("/a", 1)}, ChangesOnly: true}}),
		"another path below":      {{ChangesOnly: true, Files: []*agentv1.InventoryFile{{Path: []byte("/a"), Below: file("/b", 1)}}}},
		"too many processes":      addEnd(parts{{Processes: slices.Repeat([]*agentv1.InventoryProcess{{Pid: 1}}, maxProcesses+1)}}),
	} {
		if _, err := Compare(t.Context(), guest(nil, nil, nil), lie, 3, nil); !errors.Is(err, ErrGuest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestACallerThatLeaves(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compare(ctx, guest([]*agentv1.InventoryFile{file("/a", 1)}, nil, nil), guest(nil, nil, nil), 3, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// FuzzCompare gives both guests arbitrary bytes, split into messages by length bytes.
func FuzzCompare(f *testing.F) {
	record := func(p *parts) []byte {
		var out []byte
		for _, part := range *p {
			b, err := proto.Marshal(part)
			if err != nil || len(b) > 255 {
				f.Fatal(len(b), err)
			}
			out = append(append(out, byte(len(b))), b...)
		}
		return out
	}
	some := guest([]*agentv1.InventoryFile{file("/a", 1), file("/b", 1)}, []*agentv1.InventoryProcess{{Pid: 1, AnonKib: 1 << 63, Args: []byte("x")}},
		[]*agentv1.InventoryPackage{{Name: "n", Version: "v"}})
	f.Add(record(some), record(guest(nil, nil, nil)))
	f.Add(record(some), record(some))
	f.Add([]byte{3, 1, 2, 3}, []byte{})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		const limit = 5
		d, err := Compare(t.Context(), replay(a), replay(b), limit, nil)
		if err != nil {
			return
		}
		for _, n := range []int{len(d.Files.Added), len(d.Files.Removed), len(d.Files.Changed), len(d.Processes.Started), len(d.Processes.Ended),
			len(d.Processes.Changed), len(d.Packages.Added), len(d.Packages.Removed), len(d.Packages.Changed)} {
			if n > limit {
				t.Fatalf("a list of %d", n)
			}
		}
		if d.Files.Counts.Added < len(d.Files.Added) || d.Files.Compared < d.Files.Counts.Changed {
			t.Fatalf("%+v", d.Files)
		}
	})
}

// replay returns the stream for bytes from the wire.
func replay(b []byte) Source {
	p := parts{}
	for len(b) > 0 {
		n := min(int(b[0]), len(b)-1)
		var part agentv1.InventoryPart
		if proto.Unmarshal(b[1:1+n], &part) != nil {
			break
		}
		p, b = append(p, &part), b[1+n:]
	}
	return &p
}

// keep is called for kept data, a part's bytes are returned, and without room the comparison ends.
func TestDifferencesAreAskedFor(t *testing.T) {
	var files []*agentv1.InventoryFile
	for i := range 500 {
		files = append(files, file(fmt.Sprintf("/%0300d", i), 1))
	}
	procs := []*agentv1.InventoryProcess{{Pid: 7, Args: bytes.Repeat([]byte{0}, 1000)}}
	pkgs := []*agentv1.InventoryPackage{{Name: "p", Version: "1"}}
	for room, want := range map[int]error{1 << 20: nil, 100 << 10: ErrNoRoom} {
		held := 0
		d, err := Compare(t.Context(), guest(nil, nil, nil), guest(files, procs, pkgs), 400, func(n int) bool {
			if held+n > room {
				return false
			}
			held += n
			return true
		})
		if !errors.Is(err, want) {
			t.Errorf("room for %d: %v", room, err)
		}
		kept := 400*(300+128) + 1000*32
		if err == nil && (len(d.Files.Added) != 400 || held < kept || held > kept+10<<10) {
			t.Errorf("%d files hold %d bytes, want about %d", len(d.Files.Added), held, kept)
		}
	}
}
