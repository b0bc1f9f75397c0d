package treetar_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/guest/treetar"
	"github.com/forkd/forkd/internal/testing/tartest"
)

// onDisk is a Source of this host's files.
type onDisk struct{}

func (onDisk) Look(path string, follow bool) (fs.FileInfo, error) {
	if follow {
		return os.Stat(path)
	}
	return os.Lstat(path)
}

func (onDisk) List(path string) (names []string, err error) {
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (onDisk) ReadLink(path string) (string, error)              { return os.Readlink(path) }
func (onDisk) Open(path string, _ fs.FileInfo) (*os.File, error) { return os.Open(path) }

// memory is a Target that stores its files and checks the names.
type memory struct {
	t        testing.TB
	in       string
	made     map[string]string // by path: content, "-> text", "= first", "dir MODE"
	times    map[string]time.Time
	written  *int64 // bytes, without holes
	refuse   string // path that cannot be created
	finished *[]string
}

var _ treetar.Target = memory{}

func newMemory(t testing.TB) memory {
	return memory{t: t, made: map[string]string{}, times: map[string]time.Time{}, written: new(int64), finished: new([]string)}
}

var errRefused = errors.New("refused")

func (m memory) at(name string) (string, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		m.t.Errorf("the target got the name %q", name)
	}
	at := path.Join(m.in, name)
	if at == m.refuse {
		return "", errRefused
	}
	return at, nil
}

func (m memory) Dir(name string, meta treetar.Meta) (treetar.Target, error) {
	at, err := m.at(name)
	if err != nil {
		return nil, err
	}
	m.made[at] = fmt.Sprintf("dir %o", meta.Mode)
	m.in = at
	return m, nil
}

func (m memory) File(name string, meta treetar.Meta, c *treetar.Content) error {
	at, err := m.at(name)
	if err != nil {
		return err
	}
	f := &file{total: m.written}
	if err := c.WriteTo(f); err != nil {
		return err
	}
	m.made[at] = fmt.Sprintf("%o %d %s", meta.Mode, f.size, f.data.String())
	m.times[at] = meta.ModTime
	return nil
}

func (m memory) SymLink(name, text string, _ treetar.Meta) error {
	at, err := m.at(name)
	if err == nil {
		m.made[at] = "-> " + text
	}
	return err
}

func (m memory) HardLink(name string, first []string) error {
	at, err := m.at(name)
	if err != nil {
		return err
	}
	for _, part := range first {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "/\x00") {
			m.t.Errorf("the target got a path with %q", part)
		}
	}
	m.made[at] = "= " + strings.Join(first, "/")
	return nil
}

func (m memory) Finish(treetar.Meta) error {
	*m.finished = append(*m.finished, m.in)
	return nil
}

// file is content with holes.
type file struct {
	at, size int64
	data     bytes.Buffer
	total    *int64
}

func (f *file) Write(p []byte) (int, error) {
	f.data.Write(p[:min(len(p), max(0, 64-f.data.Len()))])
	f.at += int64(len(p))
	f.size = max(f.size, f.at)
	*f.total += int64(len(p))
	return len(p), nil
}

func (f *file) Seek(at int64, _ int) (int64, error) {
	f.at = at
	return at, nil
}

func (f *file) Truncate(size int64) error {
	f.size = size
	return nil
}

func pack(t testing.TB, root string, follow bool, tally treetar.Tally) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := treetar.Pack(t.Context(), &out, onDisk{}, root, follow, tally); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unpack(t testing.TB, stream []byte, to memory, tally treetar.Tally) error {
	t.Helper()
	return treetar.Unpack(t.Context(), bytes.NewReader(stream), to, "tree", treetar.Bounds{Depth: 8, Entries: 64}, tally)
}

func TestATreeGoesOver(t *testing.T) {
	dir := t.TempDir()
	big := bytes.Repeat([]byte("0123456789abcdef"), 40<<10) // 640 KiB: three pieces
	long := strings.Repeat("n", 200)
	err := errors.Join(
		os.MkdirAll(dir+"/sub/deep", 0o750), os.Chmod(dir+"/sub", 0o700),
		os.WriteFile(dir+"/a", []byte("alpha"), 0o640), os.WriteFile(dir+"/sub/empty", nil, 0),
		os.WriteFile(dir+"/sub/deep/big", big, 0o600), os.WriteFile(dir+"/"+long, []byte("long"), 0o644),
		os.WriteFile(dir+"/odd\xff\n", []byte("odd"), 0o644),
		os.Symlink("sub/deep", dir+"/link"), os.Link(dir+"/a", dir+"/sub/same"),
	)
	if err != nil {
		t.Fatal(err)
	}
	to, copied, skipped := newMemory(t), 0, 0
	tally := treetar.Tally{Copied: func() { copied++ }, Skipped: func(string, string) { skipped++ }}
	if err := unpack(t, pack(t, dir, false, treetar.Tally{}), to, tally); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"tree": "dir 755", "tree/a": "640 5 alpha", "tree/sub": "dir 700", "tree/sub/deep": "dir 750", "tree/sub/empty": "0 0 ",
		"tree/sub/deep/big": fmt.Sprintf("600 %d %s", len(big), big[:64]), "tree/" + long: "644 4 long",
		"tree/odd\xff\n": "644 3 odd", "tree/link": "-> sub/deep", "tree/sub/same": "= a",
	}
	for at, is := range want {
		if to.made[at] != is {
			t.Errorf("%q is %q, want %q", at, to.made[at], is)
		}
	}
	if len(to.made) != len(want) || copied != len(want) {
		t.Errorf("%d were made and %d told, want %d", len(to.made), copied, len(want))
	}
	if got := []string{"tree/sub/deep", "tree/sub", "tree"}; !slices.Equal(*to.finished, got) {
		t.Errorf("finished %q, want %q", *to.finished, got)
	}
}

func TestHolesAreNotSent(t *testing.T) {
	const size = 1 << 30
	name := filepath.Join(t.TempDir(), "sparse")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := f.WriteAt([]byte("in the middle"), size/2)
	if err := errors.Join(err1, f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(name); err != nil || blocks(st)*512 >= size {
		t.Skip("the file system keeps no holes")
	}
	stream := pack(t, name, false, treetar.Tally{})
	if len(stream) > 1<<20 {
		t.Errorf("the stream has %d bytes", len(stream))
	}
	to := newMemory(t)
	if err := unpack(t, stream, to, treetar.Tally{}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(to.made["tree"], fmt.Sprintf("644 %d ", size)) || *to.written > 1<<20 {
		t.Errorf("got %.60q, and %d bytes were written", to.made["tree"], *to.written)
	}
	if !strings.Contains(to.made["tree"], "in the middle") && !strings.Contains(to.made["tree"], "\x00") {
		t.Errorf("got %.90q", to.made["tree"])
	}
}

// TestAFileWithoutASize reads a file with a reported size of 0.
func TestAFileWithoutASize(t *testing.T) {
	to := newMemory(t)
	if err := unpack(t, pack(t, "/proc/self/status", false, treetar.Tally{}), to, treetar.Tally{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(to.made["tree"], "Name:") {
		t.Errorf("got %q", to.made["tree"])
	}
}

// TestWhatCannotBeMade checks that the other files are created, and that the contents of a failed
// directory are skipped.
func TestWhatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(os.MkdirAll(dir+"/sub/deep", 0o755), os.WriteFile(dir+"/sub/deep/f", []byte("x"), 0o644),
		os.WriteFile(dir+"/big", make([]byte, 1<<20), 0o644), os.WriteFile(dir+"/z", []byte("z"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	stream := pack(t, dir, false, treetar.Tally{})
	for refuse, left := range map[string]int{"tree/sub": 3, "tree/big": 5, "tree/sub/deep/f": 5, "tree/z": 5} {
		to := newMemory(t)
		to.refuse = refuse
		var failed []string
		err := unpack(t, stream, to, treetar.Tally{Failed: func(name string, err error) error {
			failed = append(failed, "tree/"+name)
			if !errors.Is(err, errRefused) {
				t.Error(err)
			}
			return nil
		}})
		if err != nil || !slices.Equal(failed, []string{refuse}) || len(to.made) != left {
			t.Errorf("%s: %v, failed %q, made %q", refuse, err, failed, to.made)
		}
	}
	to := newMemory(t)
	to.refuse = "tree"
	if err := unpack(t, stream, to, treetar.Tally{}); !errors.Is(err, errRefused) {
		t.Errorf("the tree itself: got %v", err)
	}
}

// TestSenderTellsWhatItCannotRead covers notes, before and within a file.
func TestSenderTellsWhatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(dir+"/a", nil, 0o644), os.WriteFile(dir+"/b", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	to := newMemory(t)
	var failed []string
	stream := join(dirEntry("./"), fileEntry("a", "half", "FORKD.more=1"), note("a", "failed", "the disk broke"),
		note("b", "failed", "denied\x1b[31m"), fileEntry("c", "c"), note(".", "end", ""))
	err := unpack(t, stream, to, treetar.Tally{Failed: func(name string, err error) error {
		var told *treetar.SenderError
		if !errors.As(err, &told) {
			t.Errorf("%v is not the sender's", err)
		}
		failed = append(failed, name+": "+err.Error())
		return nil
	}})
	if want := []string{"a: the disk broke", `b: denied\x1b[31m`}; err != nil || !slices.Equal(failed, want) {
		t.Errorf("got %v, %q", err, failed)
	}
	if _, ok := to.made["tree/a"]; ok || to.made["tree/c"] != "644 1 c" {
		t.Errorf("made %q", to.made)
	}
}

func TestAStreamThatBreaksOffIsNoWholeTree(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(dir+"/a", make([]byte, 700<<10), 0o644), os.WriteFile(dir+"/b", []byte("b"), 0o644)); err != nil {
		t.Fatal(err)
	}
	stream := pack(t, dir, false, treetar.Tally{})
	for n := 0; n < len(stream)-1024; n += 512 * 7 { // the last two blocks are tar's own end
		if err := unpack(t, stream[:n], newMemory(t), treetar.Tally{}); !errors.Is(err, treetar.ErrBroken) {
			t.Fatalf("%d of %d bytes: got %v", n, len(stream), err)
		}
	}
}

func record(k, v string) string {
	s := " " + k + "=" + v + "\n"
	n := len(s) + 1
	for len(fmt.Sprint(n))+len(s) != n {
		n++
	}
	return fmt.Sprint(n) + s
}

func pax(records ...string) []byte {
	var body string
	for _, r := range records {
		k, v, _ := strings.Cut(r, "=")
		body += record(k, v)
	}
	return tartest.Entry('x', "pax", []byte(body), nil)
}

func linkEntry(kind byte, name, text string) []byte {
	return append(pax("linkpath="+text, "path="+name), tartest.Entry(kind, "x", nil, nil)...)
}

func dirEntry(name string) []byte {
	return append(pax("path="+name), tartest.Entry('5', "x/", nil, func(h []byte) { copy(h[100:], "0000755") })...)
}

func fileEntry(name, content string, records ...string) []byte {
	return append(pax(append(records, "path="+name)...), tartest.Entry('0', "x", []byte(content), nil)...)
}

func note(name, kind, text string) []byte {
	return fileEntry(name, "", "FORKD.note="+kind, "FORKD.text="+text)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// hostile are streams that our packer does not write, each with a part of its error.
var hostile = map[string]struct {
	stream []byte
	want   string
}{
	"a path that goes up":        {join(dirEntry("./"), fileEntry("../victim", "x")), "path ../victim"},
	"a path that goes up inside": {join(dirEntry("./"), fileEntry("a/../../victim", "x")), "path a/../../victim"},
	"an absolute path":           {join(dirEntry("./"), fileEntry("/etc/victim", "x")), "path /etc/victim"},
	"two slashes":                {join(dirEntry("./"), fileEntry("a//b", "x")), "path a//b"},
	"no name":                    {join(dirEntry("./"), tartest.Entry('0', "", []byte("x"), nil)), "has the path"},
	"an overlong path":           {join(dirEntry("./"), fileEntry(strings.Repeat("a/", 3000)+"a", "x")), "has the path"},
	"a file through a link":      {join(dirEntry("./"), linkEntry('2', "l", "/etc"), fileEntry("l/passwd", "x")), "in no directory"},
	"a file in no directory":     {join(dirEntry("./"), fileEntry("d/f", "x")), "in no directory"},
	"a file in a left directory": {join(dirEntry("./"), dirEntry("d/"), dirEntry("e/"), fileEntry("d/f", "x")), "in no directory"},
	"the tree twice":             {join(dirEntry("./"), dirEntry("./")), "in no directory"},
	"a file beside a file":       {join(fileEntry(".", "x"), fileEntry("f", "x")), "in no directory"},
	"another tree first":         {join(dirEntry("d/")), "begins with d"},
	"a link as the tree":         {join(linkEntry('2', ".", "/etc")), "kind '2'"},
	"a hard link to outside":     {join(dirEntry("./"), linkEntry('1', "h", "../victim")), "another name of ../victim"},
	"a hard link to the root":    {join(dirEntry("./"), linkEntry('1', "h", "/etc/passwd")), "another name of /etc/passwd"},
	"a hard link to the tree":    {join(dirEntry("./"), linkEntry('1', "h", ".")), "another name of ."},
	"a link without a text":      {join(dirEntry("./"), tartest.Entry('2', "l", nil, nil)), "without a text"},
	"an overlong text":           {join(dirEntry("./"), linkEntry('2', "l", strings.Repeat("x", 5000))), "link's text"},
	"a device":                   {join(dirEntry("./"), tartest.Entry('3', "d", nil, nil)), "kind '3'"},
	"a FIFO":                     {join(dirEntry("./"), tartest.Entry('6', "p", nil, nil)), "kind '6'"},
	"a global header":            {join(dirEntry("./"), tartest.Entry('g', "g", []byte(record("a", "b")), nil)), "forkd's"},
	"a huge piece": {join(dirEntry("./"), tartest.Entry('0', "f", nil, func(h []byte) { copy(h[124:], "77777777777") })),
		"a piece of 8589934591 bytes"},
	"a sparse file of GNU's": {join(dirEntry("./"), fileEntry("f", "0\n"+strings.Repeat("\x00", 510), "GNU.sparse.major=1", "GNU.sparse.minor=0",
		"GNU.sparse.realsize=1152921504606846976", "GNU.sparse.name=f")), "f has a piece of 1152921504606846976 bytes"},
	"a piece before the last one": {join(dirEntry("./"), fileEntry("f", "abc", "FORKD.more=1"),
		fileEntry("f", "abc", "FORKD.at=2")), "a piece at 2"},
	"a piece at no number":    {join(dirEntry("./"), fileEntry("f", "abc", "FORKD.at=x")), "a piece at x"},
	"a piece below zero":      {join(dirEntry("./"), fileEntry("f", "abc", "FORKD.at=-1")), "a piece at -1"},
	"a file without an end":   {join(dirEntry("./"), fileEntry("f", "abc", "FORKD.at=9223372036854775807")), "a piece at 92233"},
	"a piece of another file": {join(dirEntry("./"), fileEntry("f", "abc", "FORKD.more=1"), fileEntry("g", "x")), "a piece of f"},
	"an unknown note":         {join(dirEntry("./"), note("f", "curse", "x")), "has a note curse"},
	"too many entries":        {join(dirEntry("./"), bytes.Repeat(fileEntry("f", ""), 65)), "more than 64 files"},
	"too many notes":          {join(dirEntry("./"), bytes.Repeat(note("f", "skipped", "x"), 65)), "more than 64 files"},
	"too many records":        {join(dirEntry("./"), fileEntry("f", "", manyRecords()...)), "f has 21 records"},
	"an early end":            {join(dirEntry("./"), note(".", "end", "it hurts\x07")), `it hurts\a`},
	"no tar":                  {[]byte(strings.Repeat("no tar at all ", 100)), "forkd's"},
}

func manyRecords() (out []string) {
	for i := range 20 {
		out = append(out, fmt.Sprintf("R.%d=x", i))
	}
	return out
}

func TestHostileStreams(t *testing.T) {
	for name, row := range hostile {
		t.Run(name, func(t *testing.T) {
			to := newMemory(t)
			err := unpack(t, append(row.stream, note(".", "end", "")...), to, treetar.Tally{})
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
			for at := range to.made {
				if at != "tree" && !strings.HasPrefix(at, "tree/") {
					t.Errorf("%s was made", at)
				}
			}
		})
	}
}

func TestADeepTreeIsCut(t *testing.T) {
	stream, name := dirEntry("./"), "d"
	for range 20 {
		stream = append(stream, dirEntry(name+"/")...)
		name += "/d"
	}
	to, failed := newMemory(t), 0
	tally := treetar.Tally{Failed: func(_ string, err error) error {
		failed++
		if !strings.Contains(err.Error(), "more than 8 deep") {
			t.Error(err)
		}
		return nil
	}}
	if err := unpack(t, append(stream, note(".", "end", "")...), to, tally); err != nil || failed != 1 || len(to.made) != 9 {
		t.Errorf("got %v, %d failed, %d made", err, failed, len(to.made))
	}
}

// TestModesAndTimesAreBounded checks that bits other than permissions are dropped, and times
// outside the range of nanoseconds.
func TestModesAndTimesAreBounded(t *testing.T) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := errors.Join(
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}),
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o7777}),
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "g", Mode: 0o600, Format: tar.FormatPAX, ModTime: time.Unix(1<<40, 0)}),
	)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(note(".", "end", ""))
	to := newMemory(t)
	if err := unpack(t, out.Bytes(), to, treetar.Tally{}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(to.made["tree/f"], "777 ") || !to.times["tree/g"].IsZero() {
		t.Errorf("made %q at %v", to.made, to.times)
	}
}

func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(os.Mkdir(dir+"/d", 0o755), os.WriteFile(dir+"/a", make([]byte, 10_000), 0o644),
		os.WriteFile(dir+"/d/b", make([]byte, 100), 0o644), os.Link(dir+"/a", dir+"/d/again"))
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := treetar.Measure(t.Context(), onDisk{}, dir, false); !ok || n != 10_100 {
		t.Errorf("got %d, %v", n, ok)
	}
}

func FuzzUnpack(f *testing.F) {
	for _, row := range hostile {
		f.Add(row.stream)
	}
	f.Add(join(dirEntry("./"), dirEntry("d/"), fileEntry("d/f", "content"), linkEntry('1', "d/g", "d/f"), linkEntry('2', "l", "x"),
		fileEntry("s", "abc", "FORKD.more=1"), fileEntry("s", "", "FORKD.at=100000"), note("q", "skipped", "it is odd"), note(".", "end", "")))
	f.Fuzz(func(t *testing.T, stream []byte) {
		to := newMemory(t)
		_ = unpack(t, stream, to, treetar.Tally{Failed: func(string, error) error { return nil }})
		for at, is := range to.made {
			if at != "tree" && !strings.HasPrefix(at, "tree/") || len(is) > 8192 {
				t.Errorf("%q is %.80q", at, is)
			}
		}
		if *to.written > int64(len(stream))+1<<20 {
			t.Errorf("%d bytes became %d", len(stream), *to.written)
		}
	})
}

func blocks(st fs.FileInfo) int64 { return st.Sys().(*syscall.Stat_t).Blocks }
