package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/testing/tartest"
)

var roomy = Limits{Bytes: 1 << 20, Entries: 100}

func pack(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		body := ""
		if h.Typeflag == tar.TypeReg {
			body, h.Gname = h.Gname, ""
			h.Size = int64(len(body))
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// file returns a header. Gname holds the content until the file is packed.
func file(name, content string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Gname: content, Mode: 0o640, Uid: 7, ModTime: time.Unix(1, 0)}
}

func folder(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o750}
}

func link(name, to string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}
}

func hard(name, to string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to, Mode: 0o640}
}

func zip(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b)
	z.Close()
	return out.Bytes()
}

// unpacked returns an archive as lines.
func unpacked(t testing.TB, b []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = fmt.Sprintf("%c %o %d:%d %s%s", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Linkname, body)
	}
}

func TestWhereThingsGo(t *testing.T) {
	tree := pack(t, folder("src"), file("src/a.txt", "a"), folder("src/sub"), file("src/sub/b.txt", "b"), link("src/l", "a.txt"),
		hard("src/h", "src/a.txt"))
	all := map[string]string{
		"app/": "5 750 1:2 ", "app/a.txt": "0 640 1:2 a", "app/sub/": "5 750 1:2 ", "app/sub/b.txt": "0 640 1:2 b",
		"app/l": "2 777 1:2 a.txt", "app/h": "1 640 1:2 app/a.txt",
	}
	for _, row := range []struct {
		name string
		in   []byte
		l    Layout
		want map[string]string
	}{
		{"a folder's content", tree, Layout{Source: "src", Dest: "/app", Mode: -1}, all},
		{"with dots and a slash", tree, Layout{Source: "./x/../src/", Dest: "/app", Dir: true, Mode: -1}, all},
		{"packed", zip(tree), Layout{Source: "src", Dest: "/app", Mode: -1}, all},
		{"a pattern, without entries of folders", pack(t, file("src/a.py", "a"), file("src/d/b.py", "b")),
			Layout{Source: "src/**/*.py", Dest: "/app", Mode: -1}, map[string]string{"app/": "5 755 1:2 ",
				"app/a.py": "0 640 1:2 a", "app/d/": "5 755 1:2 ", "app/d/b.py": "0 640 1:2 b"}},
		{"everything", pack(t, folder("."), file("a", "a")), Layout{Source: ".", Dest: "/app", Mode: -1},
			map[string]string{"app/": "5 750 1:2 ", "app/a": "0 640 1:2 a"}},
		{"a file by its new name", pack(t, file("a.txt", "a")), Layout{Source: "a.txt", Dest: "/etc/b.txt", Mode: -1},
			map[string]string{"etc/b.txt": "0 640 1:2 a"}},
		{"a file into a folder", pack(t, file("d/a.txt", "a")), Layout{Source: "d/a.txt", Dest: "/etc", Dir: true, Mode: -1},
			map[string]string{"etc/a.txt": "0 640 1:2 a"}},
		{"with a mode", pack(t, file("a.txt", "a")), Layout{Source: "a.txt", Dest: "/b", Mode: 0o755},
			map[string]string{"b": "0 755 1:2 a"}},
	} {
		row.l.UID, row.l.GID = 1, 2
		var out bytes.Buffer
		if _, err := Rewrite(t.Context(), bytes.NewReader(row.in), &out, row.l, roomy); err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if got := unpacked(t, out.Bytes()); !maps.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, row := range map[string]struct {
		in   []byte
		want error
	}{
		"no tar":                          {[]byte("hello, this is not a tar archive"), ErrBad},
		"gzip that breaks off":            {zip(pack(t, file("a", "a")))[:30], ErrBad},
		"a tar that breaks off":           {pack(t, file("a", "aaaa"))[:514], ErrBad},
		"an absolute name":                {pack(t, file("/etc/passwd", "a")), ErrBad},
		"a way out":                       {pack(t, file("a/../../b", "a")), ErrBad},
		"a file below a link":             {pack(t, link("l", "/etc"), file("l/passwd", "a")), ErrBad},
		"a file deep below one":           {pack(t, link("l", "/etc"), file("l/a/b", "a")), ErrBad},
		"a file below a file":             {pack(t, file("f", "a"), file("f/b", "a")), ErrBad},
		"a hard link to nothing":          {pack(t, hard("h", "f")), ErrBad},
		"a hard link to outside":          {pack(t, hard("h", "../f")), ErrBad},
		"a hard link to a link":           {pack(t, link("l", "/etc/shadow"), hard("h", "l")), ErrBad},
		"a link without an end":           {pack(t, link("l", "")), ErrBad},
		"a device":                        {pack(t, &tar.Header{Typeflag: tar.TypeChar, Name: "d", Devmajor: 1}), ErrBad},
		"a FIFO":                          {pack(t, &tar.Header{Typeflag: tar.TypeFifo, Name: "d"}), ErrBad},
		"a long name":                     {pack(t, file(long, "a")), ErrBad},
		"a link that turns into a folder": {pack(t, link("l", "/etc"), folder("l"), file("l/a", "a")), ErrBad},
		"more bytes than allowed":         {zip(pack(t, file("a", strings.Repeat("0", 2<<20)))), ErrTooLarge},
		"more entries":                    {pack(t, slices.Repeat([]*tar.Header{folder("d")}, 101)...), ErrTooLarge},
	} {
		if _, err := Scan(t.Context(), bytes.NewReader(row.in), roomy); !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", name, err, row.want)
		}
		_, err := Rewrite(t.Context(), bytes.NewReader(row.in), io.Discard, Layout{Source: ".", Dest: "/x", Mode: -1}, roomy)
		if !errors.Is(err, row.want) {
			t.Errorf("%s, written anew: %v, want %v", name, err, row.want)
		}
	}
	if _, err := Rewrite(t.Context(), bytes.NewReader(pack(t, file("a", "a"))), io.Discard, Layout{Source: "b", Dest: "/x"}, roomy); !errors.Is(err, ErrBad) {
		t.Errorf("nothing to copy: %v", err)
	}
}

// A sparse file claims many bytes with a few. They count as if they were there.
func TestHolesAreBytes(t *testing.T) {
	records := map[string]string{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "s",
		"GNU.sparse.realsize": "9000000000000000"}
	var pax bytes.Buffer
	for k, v := range records {
		line := fmt.Sprintf(" %s=%s\n", k, v)
		n := len(line)
		for n != len(fmt.Sprint(n))+len(line) {
			n = len(fmt.Sprint(n)) + len(line)
		}
		fmt.Fprintf(&pax, "%d%s", n, line)
	}
	b := rawEntry('x', "p", pax.Bytes())
	data := make([]byte, 512)
	copy(data, "1\n0\n0\n")
	b = append(b, rawEntry('0', "s", data)...)
	b = append(b, make([]byte, 1024)...)
	if _, err := Scan(t.Context(), bytes.NewReader(b), roomy); !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrBad) {
		t.Errorf("holes: %v", err)
	}
}

// rawEntry returns an entry archive/tar would not write.
func rawEntry(kind byte, name string, body []byte) []byte {
	return tartest.Entry(kind, name, body, nil)
}

func TestTheDigestIsOfContents(t *testing.T) {
	sum := func(b []byte) string {
		t.Helper()
		s, err := Scan(t.Context(), bytes.NewReader(b), roomy)
		if err != nil {
			t.Fatal(err)
		}
		return s.Digest
	}
	late := file("a", "a")
	late.ModTime, late.Uid = time.Unix(99, 0), 1000
	base := sum(pack(t, file("a", "a"), file("b", "b")))
	if sum(zip(pack(t, file("b", "b"), late))) != base {
		t.Error("order, times, owners or packing changed it")
	}
	mode := file("a", "a")
	mode.Mode = 0o755
	for name, b := range map[string][]byte{
		"content": pack(t, file("a", "x"), file("b", "b")), "mode": pack(t, mode, file("b", "b")),
		"name": pack(t, file("c", "a"), file("b", "b")), "a file less": pack(t, file("a", "a")),
	} {
		if sum(b) == base {
			t.Errorf("another %s did not change it", name)
		}
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add(pack(f, folder("src"), file("src/a", "a"), link("src/l", "../x"), hard("src/h", "src/a")), "src", "/app")
	f.Add(zip(pack(f, file("a", "a"))), "*", "/")
	f.Add(rawEntry('S', "s", []byte("x")), ".", "/x")
	f.Add(gzipped(f, 9, names(60, records(3), number)), ".", "/x")
	f.Fuzz(func(t *testing.T, b []byte, source, dest string) {
		if len(b) > 32<<10 || len(source)+len(dest) > 1<<10 {
			return // larger inputs only cost time
		}
		if !strings.HasPrefix(dest, "/") {
			dest = "/" + dest
		}
		lim := Limits{Bytes: 64 << 10, Entries: 50}
		_, scanErr := Scan(t.Context(), bytes.NewReader(b), lim)
		var out bytes.Buffer
		_, err := Rewrite(t.Context(), bytes.NewReader(b), &out, Layout{Source: source, Dest: dest, Mode: -1}, lim)
		if err != nil {
			return
		}
		if scanErr != nil {
			t.Fatalf("what cannot be scanned was written: %v", scanErr)
		}
		if out.Len() > 64<<10+50*8<<10 {
			t.Fatalf("%d bytes came out", out.Len())
		}
		r := tar.NewReader(&out)
		links := map[string]bool{}
		for {
			h, err := r.Next()
			if err != nil {
				break
			}
			name := strings.TrimSuffix(h.Name, "/")
			if strings.HasPrefix(name, "/") || slices.Contains(strings.Split(name, "/"), "..") {
				t.Fatalf("%q leads out", h.Name)
			}
			for l := range links {
				if strings.HasPrefix(name, l+"/") {
					t.Fatalf("%q is below the link %q", h.Name, l)
				}
			}
			switch h.Typeflag {
			case tar.TypeReg, tar.TypeDir, tar.TypeLink:
			case tar.TypeSymlink:
				links[name] = true
			default:
				t.Fatalf("%q is a %c", h.Name, h.Typeflag)
			}
		}
	})
}
