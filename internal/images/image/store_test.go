package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

func testFilesOf(name string) map[string][]byte {
	return map[string][]byte{KernelFile: []byte("kernel of " + name), InitrdFile: []byte("initrd"), RootFile: []byte("root of " + name)}
}

func testMetadata(name string) Metadata {
	m := Metadata{
		FormatVersion: FormatVersion, Name: name, Description: "for <tests>", Suite: "bookworm",
		Kernel:   KernelInfo{Release: "6.12.0-test", Package: "linux-image-6.12.0-test", Version: "6.12.0-1"},
		Defaults: Defaults{MemoryMiB: 128, VCPUs: 1, Env: map[string]string{"LANG": "C.UTF-8"}, User: "user", Workdir: "/home/user", Warm: []Warm{{"python", "import numpy\n"}}},
		Files:    map[string]FileSum{},
		Packages: []string{"bash=5.2-1", "libc6=2.36-9"},
	}
	for file, data := range testFilesOf(name) {
		m.Files[file] = FileSum{Size: int64(len(data)), SHA256: sum(data)}
	}
	return m
}

// putImage adds an image to a store in the same way as a build.
func putImage(t testing.TB, s *Store, name string) Image {
	t.Helper()
	dir := t.TempDir()
	parts := map[string]entry{}
	for file, data := range testFilesOf(name) {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
			t.Fatal(err)
		}
		parts[file] = entry{dir: dir}
	}
	img, err := (&build{}).store(s, testMetadata(name), parts)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func openTestStore(t testing.TB) *Store {
	t.Helper()
	s, err := OpenStore(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// onlyNames fails if the store has other entries, including temporary directories.
func onlyNames(t testing.TB, s *Store, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	if strings.Join(have, " ") != strings.Join(names, " ") {
		t.Errorf("the store has %q, want %q", have, names)
	}
}

func export(t testing.TB, img Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := img.Export(context.Background(), &b, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestMetadataGolden(t *testing.T) {
	got, err := testMetadata("golden").encode()
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "image-v2.json")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("format version %d has changed:\n%s", FormatVersion, got)
	}
	m, err := parseMetadata(want)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := m.encode(); err != nil || !bytes.Equal(again, want) {
		t.Errorf("reading and writing changes it: %v\n%s", err, again)
	}
}

func TestStore(t *testing.T) {
	s := openTestStore(t)
	if _, err := s.Get("a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("get of nothing: %v", err)
	}
	putImage(t, s, "b")
	a := putImage(t, s, "a")
	list, err := s.List()
	if err != nil || len(list) != 2 || list[0].Name != "a" || list[1].Name != "b" {
		t.Fatalf("list: %v, %v", list, err)
	}
	id, err := a.ID()
	if err != nil {
		t.Fatal(err)
	}
	if !s.Has("a", id) || s.Has("b", id) || s.Has("c", id) {
		t.Error("Has is wrong")
	}
	if err := s.Verify(context.Background(), "a"); err != nil {
		t.Error(err)
	}
	putImage(t, s, "a") // once more: no change
	if err := s.Remove("a"); err != nil {
		t.Error(err)
	}
	if err := s.Remove("a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("second remove: %v", err)
	}
	onlyNames(t, s, "b")
	for _, bad := range []string{"", "..", "a/b", ".tmp-1", strings.Repeat("x", 65)} {
		if _, err := s.Get(bad); !errors.Is(err, ErrName) {
			t.Errorf("get %q: %v", bad, err)
		}
		if err := s.Remove(bad); !errors.Is(err, ErrName) {
			t.Errorf("remove %q: %v", bad, err)
		}
	}
}

// Several builds of one name may end at any moment. A reader always gets one of the images, complete.
func TestImagesAreReplacedWhole(t *testing.T) {
	s := openTestStore(t)
	var builders sync.WaitGroup
	for range 2 {
		dir := t.TempDir()
		builders.Go(func() {
			for n := 1; n <= 200 && !t.Failed(); n++ {
				if err := putSized(s, dir, n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { builders.Wait(); close(ended) }()
	seen := 0
	for running := true; running; {
		select {
		case <-ended:
			running = false
		default:
		}
		img, err := s.Get("a")
		switch {
		case errors.Is(err, ErrNotFound) && seen == 0:
		case err != nil:
			t.Error(err)
		case img.Files[KernelFile].Size != img.Files[RootFile].Size:
			t.Errorf("parts of two images: %+v", img.Files)
		default:
			seen++
		}
	}
	if seen == 0 {
		t.Error("the image was never there")
	}
	onlyNames(t, s, "a")
}

// putSized adds an image "a" with files of n bytes to a store.
func putSized(s *Store, dir string, n int) error {
	m, parts := testMetadata("a"), map[string]entry{}
	for _, file := range []string{KernelFile, InitrdFile, RootFile} {
		path, data := filepath.Join(dir, file), bytes.Repeat([]byte("x"), n)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
		defer os.Remove(path) // the image still has a link to it
		m.Files[file], parts[file] = FileSum{Size: int64(n), SHA256: sum(data)}, entry{dir: dir}
	}
	_, err := (&build{}).store(s, m, parts)
	return err
}

func TestDamagedImages(t *testing.T) {
	// Files are replaced, not written, because they are links.
	replace := func(t *testing.T, path string, data string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, want string
		harm       func(t *testing.T, img Image)
		onlyVerify bool
	}{
		{"root cut short", "root.erofs has 4 bytes, not 9", func(t *testing.T, i Image) { replace(t, i.Path(RootFile), "root") }, false},
		{"no kernel", "vmlinux", func(t *testing.T, i Image) { os.Remove(i.Path(KernelFile)) }, false},
		{"no metadata", "image.json", func(t *testing.T, i Image) { os.Remove(i.Path(MetadataFile)) }, false},
		{"metadata cut short", "image.json", func(t *testing.T, i Image) { replace(t, i.Path(MetadataFile), `{"format_version": 2,`) }, false},
		{"another format", "format version 1, this forkd reads 2: build the image again", func(t *testing.T, i Image) { replace(t, i.Path(MetadataFile), `{"format_version": 1}`) }, false},
		{"a changed byte", "root.erofs is not what was built", func(t *testing.T, i Image) { replace(t, i.Path(RootFile), "roof of a") }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openTestStore(t)
			img := putImage(t, s, "a")
			putImage(t, s, "whole")
			tc.harm(t, img)
			_, err := s.Get("a")
			if tc.onlyVerify {
				if err != nil {
					t.Fatal(err)
				}
				err = s.Verify(context.Background(), "a")
			} else if list, lerr := s.List(); len(list) != 1 || !errors.Is(lerr, ErrDamaged) {
				t.Errorf("list: %d images, %v", len(list), lerr)
			}
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if err := s.Remove("a"); err != nil {
				t.Errorf("a damaged image cannot be removed: %v", err)
			}
		})
	}
}

func TestExportImport(t *testing.T) {
	img := putImage(t, openTestStore(t), "a")
	stream := export(t, img)
	to := openTestStore(t)
	got, err := to.Import(context.Background(), bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	id, _ := img.ID()
	if !to.Has("a", id) || got.Name != "a" {
		t.Error("the import is another image")
	}
	if err := got.Verify(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := to.Import(context.Background(), bytes.NewReader(stream)); err != nil {
		t.Errorf("in place of itself: %v", err)
	}
	onlyNames(t, to, "a")
}

// tarOf returns a tar stream with these members, in order.
func tarOf(t testing.TB, members ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		data := []byte(members[i+1].(string))
		if err := w.WriteHeader(&tar.Header{Name: members[i].(string), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImportRefuses(t *testing.T) {
	m := testMetadata("a")
	meta := func(change func(*Metadata)) string {
		m := testMetadata("a")
		if change != nil {
			change(&m)
		}
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	f := testFilesOf(m.Name)
	k, i, r := string(f[KernelFile]), string(f[InitrdFile]), string(f[RootFile])
	good := tarOf(t, MetadataFile, meta(nil), KernelFile, k, InitrdFile, i, RootFile, r)
	for _, tc := range []struct {
		name, want string
		stream     []byte
	}{
		{"nothing", "EOF", nil},
		{"no tar", "", bytes.Repeat([]byte("x"), 2048)},
		{"no metadata first", "not with image.json", tarOf(t, KernelFile, k)},
		{"a path to above", `"../vmlinux", which does not belong`, tarOf(t, MetadataFile, meta(nil), "../vmlinux", k)},
		{"a name of a folder", "bad image name", tarOf(t, MetadataFile, meta(func(m *Metadata) { m.Name = "../../etc" }))},
		{"another file", `"extra", which does not belong`, tarOf(t, MetadataFile, meta(nil), "extra", k)},
		{"a file twice", "does not belong", tarOf(t, MetadataFile, meta(nil), KernelFile, k, KernelFile, k)},
		{"a file missing", "ends without root.erofs", tarOf(t, MetadataFile, meta(nil), KernelFile, k, InitrdFile, i)},
		{"another size", "has 6 bytes, not", tarOf(t, MetadataFile, meta(nil), KernelFile, "kernel")},
		{"another content", "another content", tarOf(t, MetadataFile, meta(nil), KernelFile, strings.ToUpper(k))},
		{"cut short", "unexpected EOF", good[:len(good)-1024-512+5]},
		{"an impossible size", "impossible size", tarOf(t, MetadataFile, meta(func(m *Metadata) { m.Files[RootFile] = FileSum{Size: -1, SHA256: sum(nil)} }))},
		{"an impossible digest", "impossible size or digest", tarOf(t, MetadataFile, meta(func(m *Metadata) { m.Files[RootFile] = FileSum{Size: 1, SHA256: "x"} }))},
		{"no memory", "memory_mib", tarOf(t, MetadataFile, meta(func(m *Metadata) { m.Defaults.MemoryMiB = 0 }))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openTestStore(t)
			putImage(t, s, "a")
			_, err := s.Import(context.Background(), bytes.NewReader(tc.stream))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			onlyNames(t, s, "a")
			if err := s.Verify(context.Background(), "a"); err != nil {
				t.Errorf("the image that was there: %v", err)
			}
		})
	}
}

func TestImportStopsWithItsContext(t *testing.T) {
	s := openTestStore(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("the user's wish")
	stream := export(t, putImage(t, openTestStore(t), "a"))
	_, err := s.Import(ctx, io.MultiReader(bytes.NewReader(stream[:700]), readerFunc(func([]byte) (int, error) {
		cancel(reason)
		return 0, nil
	}), bytes.NewReader(stream[700:])))
	if !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	onlyNames(t, s)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestOpenSweepsWhatWasLeft(t *testing.T) {
	s := openTestStore(t)
	putImage(t, s, "a")
	left := filepath.Join(s.Dir(), tempPrefix+"left")
	if err := os.MkdirAll(filepath.Join(left, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	atWork, err := makeTemp(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer atWork.Remove()
	if _, err := OpenStore(s.Dir()); err != nil {
		t.Fatal(err)
	}
	onlyNames(t, s, filepath.Base(atWork.Path), "a")
}

func FuzzImport(f *testing.F) {
	f.Add(export(f, putImage(f, openTestStore(f), "a")))
	f.Add(tarOf(f, MetadataFile, `{"format_version":2}`))
	for _, stream := range sparseStreams(f, 1<<20) {
		f.Add(stream)
	}
	// Skip Import's sync to the disk, which would take most of the time.
	parent := f.TempDir()
	f.Fuzz(func(t *testing.T, stream []byte) {
		dir, err := os.MkdirTemp(parent, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		meta, err := receive(context.Background(), dir, tar.NewReader(bytes.NewReader(stream)))
		if err != nil {
			return
		}
		img, err := OpenDir(dir)
		if err != nil || img.Name != meta.Name {
			t.Fatalf("took what cannot be opened: %v", err)
		}
		if err := img.Verify(context.Background()); err != nil {
			t.Fatalf("took what is damaged: %v", err)
		}
	})
}

// Directories are made while others sweep, which take some that have no lock yet.
func TestASweepBesideWork(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var sweeps sync.WaitGroup
	sweeps.Go(func() {
		for ctx.Err() == nil {
			if err := sweep(dir); err != nil {
				t.Error(err)
			}
		}
	})
	for range 200 {
		tmp, err := makeTemp(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tmp.Path, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		tmp.Remove()
	}
	cancel()
	sweeps.Wait()
}
