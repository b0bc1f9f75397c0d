package ociimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// packed is a layer with a blob and a digest of the unpacked tar that may not fit together.
type packed struct {
	blob   []byte
	diffID v1.Hash
	kind   types.MediaType
}

func zipped(t testing.TB, data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	z.Close()
	return b.Bytes()
}

func zstded(t testing.TB, data []byte) []byte {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(data, nil)
}

// write writes an OCI layout by hand: the libraries would refuse these images.
func write(t testing.TB, config string, change func(manifest string) string, layers ...packed) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) string {
		d := digestOf(b)
		if err := os.WriteFile(filepath.Join(dir, "blobs", "sha256", d.Hex), b, 0o644); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`"digest":"%s","size":%d`, d, len(b))
	}
	var list, ids []string
	for _, l := range layers {
		list = append(list, fmt.Sprintf(`{"mediaType":%q,%s}`, l.kind, put(l.blob)))
		ids = append(ids, fmt.Sprintf("%q", l.diffID))
	}
	if config == "" {
		config = `{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":[` + strings.Join(ids, ",") + `]}}`
	}
	m := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,%s},"layers":[%s]}`,
		types.OCIManifestSchema1, types.OCIConfigJSON, put([]byte(config)), strings.Join(list, ","))
	if change != nil {
		m = change(m)
	}
	index := fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":%q,%s}]}`, types.OCIManifestSchema1, put([]byte(m)))
	if err := os.WriteFile(filepath.Join(dir, "index.json"), []byte(index), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCompressions(t *testing.T) {
	data := tarOf(t, "f=1")
	dir := write(t, "", nil, packed{zipped(t, data), digestOf(data), types.OCILayer},
		packed{zstded(t, tarOf(t, "g=2")), digestOf(tarOf(t, "g=2")), types.OCILayerZStd},
		packed{append(zipped(t, data[:512]), zipped(t, data[512:])...), digestOf(data), types.DockerLayer},
		packed{tarOf(t, "h=3"), digestOf(tarOf(t, "h=3")), types.OCIUncompressedLayer})
	img, err := open(t, dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := root(t, img)
	if err != nil || list(t, r) != "f=1 g=2 h=3" {
		t.Errorf("%v", err)
	}
}

func TestRefusedImages(t *testing.T) {
	data := tarOf(t, "f="+string(big(100_000)))
	good := packed{zipped(t, data), digestOf(data), types.OCILayer}
	bomb := tarOfHeaders(t, file{Header: tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: 40 << 20}, data: string(make([]byte, 40<<20))})
	replace := func(old, new string) func(string) string {
		return func(m string) string { return strings.Replace(m, old, new, 1) }
	}
	many := make([]packed, 128)
	for i := range many {
		many[i] = good
	}
	for name, row := range map[string]struct {
		config string
		change func(string) string
		layers []packed
		want   string
	}{
		"a wrong diff ID":         {"", nil, []packed{{good.blob, digestOf(nil), types.OCILayer}}, "unpacked layer has the digest"},
		"truncated gzip":          {"", nil, []packed{{good.blob[:len(good.blob)/2], good.diffID, types.OCILayer}}, ""},
		"truncated zstd":          {"", nil, []packed{{zstded(t, data)[:60], good.diffID, types.OCILayer}}, ""},
		"a truncated tar":         {"", nil, []packed{{data[:1000], digestOf(data[:1000]), types.OCIUncompressedLayer}}, ""},
		"garbage":                 {"", nil, []packed{{big(5000), digestOf(big(5000)), types.OCILayer}}, ""},
		"a gzip bomb":             {"", nil, []packed{{zipped(t, bomb), digestOf(bomb), types.OCILayer}}, "more than"},
		"a zstd bomb":             {"", nil, []packed{{zstded(t, bomb), digestOf(bomb), types.OCILayerZStd}}, "more than"},
		"an unknown type":         {"", nil, []packed{{good.blob, good.diffID, "application/x-evil"}}, "application/x-evil"},
		"an encrypted layer":      {"", nil, []packed{{good.blob, good.diffID, types.OCILayer + "+encrypted"}}, "encrypted"},
		"128 layers":              {"", nil, many, "128 layers"},
		"a wrong size":            {"", replace(fmt.Sprint(len(good.blob)), "7"), []packed{good}, "bytes, not 7"},
		"a negative size":         {"", replace(fmt.Sprint(len(good.blob)), "-7"), []packed{good}, ""},
		"a digest that is a path": {"", replace(digestOf(good.blob).String(), "sha256:../../../../etc/passwd"), []packed{good}, ""},
		"sha512":                  {"", replace("sha256:", "sha512:"), []packed{good}, ""},
		"an artifact":             {"", replace(string(types.OCIConfigJSON), "application/vnd.cncf.helm.config.v1+json"), []packed{good}, "artifact"},
		"schema 1":                {"", replace(`"schemaVersion":2`, `"schemaVersion":1`), []packed{good}, "schema 1"},
		"more layers than IDs":    {`{"os":"linux","architecture":"amd64"}`, nil, []packed{good}, "0 layers"},
		"a configuration of junk": {`{{`, nil, []packed{good}, "configuration"},
		"a zero byte":             {`{"os":"linux","architecture":"amd64","config":{"Cmd":["a\u0000b"]}}`, nil, nil, "zero byte"},
	} {
		t.Run(name, func(t *testing.T) {
			img, err := open(t, write(t, row.config, row.change, row.layers...), Limits{Slack: 1 << 20})
			if err == nil {
				_, err = root(t, img)
			}
			wantInvalid(t, err, row.want)
		})
	}
}

// A sparse file is small in the tar, and large in the root.
func TestSparseBomb(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h := &tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: 512, Format: tar.FormatPAX}
	if err := w.WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	w.Write(make([]byte, 512))
	w.Close()
	raw := b.Bytes()
	// An old GNU header: type S, and the real size in octal at byte 483.
	raw[156] = 'S'
	copy(raw[257:], "ustar  \x00")
	copy(raw[386:], "00000000000\x0000000001000\x00") // the only data: 512 bytes at 0
	copy(raw[483:], "77777777777\x00")                // 8 GiB - 1
	sum := 0
	copy(raw[148:156], "        ")
	for _, c := range raw[:512] {
		sum += int(c)
	}
	copy(raw[148:], fmt.Sprintf("%06o\x00 ", sum))
	dir := write(t, "", nil, packed{raw, digestOf(raw), types.OCIUncompressedLayer})
	img, err := open(t, dir, Limits{Unpacked: 1 << 30})
	if err == nil {
		_, err = root(t, img)
	}
	wantInvalid(t, err, "")
}

func TestALayoutCannotLeadOutOfItsFolder(t *testing.T) {
	data := tarOf(t, "f=1")
	dir := write(t, "", nil, packed{data, digestOf(data), types.OCIUncompressedLayer})
	blob := filepath.Join(dir, "blobs", "sha256", digestOf(data).Hex)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.Rename(blob, outside), os.Symlink(outside, blob)); err != nil {
		t.Fatal(err)
	}
	img, err := open(t, dir, Limits{})
	if err == nil {
		_, err = root(t, img)
	}
	if err == nil {
		t.Error("a blob outside of the layout was read")
	}
}

// Files of `docker save`, plain and compressed, and an OCI layout in a tar.
func TestArchives(t *testing.T) {
	img := imageOf(t, v1.Config{Cmd: []string{"x"}}, tarOf(t, "a=1"), tarOf(t, ".wh.a=", "b=2"))
	tag, _ := name.NewTag("app:1")
	saved := filepath.Join(t.TempDir(), "app.tar")
	if err := tarball.WriteToFile(saved, tag, img); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"plain": b, "gzip": zipped(t, b), "zstd": zstded(t, b), "layout": tarFolder(t, layoutOf(t, img)),
	} {
		path := filepath.Join(t.TempDir(), "f.tar")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		img, err := open(t, path, Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r, err := root(t, img)
		if err != nil || list(t, r) != "b=2" || img.Config.Cmd[0] != "x" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenFile(t.Context(), saved, "other:2", t.TempDir(), Limits{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("another tag: %v", err)
	}
	if img, err := OpenFile(t.Context(), saved, "index.docker.io/library/app:1", t.TempDir(), Limits{}); err == nil {
		img.Close()
	} else if img, err := OpenFile(t.Context(), saved, "app:1", t.TempDir(), Limits{}); err == nil {
		img.Close()
	} else {
		t.Errorf("its tag: %v", err)
	}
	for name, data := range map[string][]byte{"empty": nil, "text": []byte("hello"), "a tar of other files": tarOf(t, "x=1")} {
		path := filepath.Join(t.TempDir(), "f.tar")
		os.WriteFile(path, data, 0o644)
		_, err := open(t, path, Limits{})
		t.Run(name, func(t *testing.T) { wantInvalid(t, err, "") })
	}
}

func tarFolder(t *testing.T, dir string) []byte {
	var all []any
	filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			b, _ := os.ReadFile(p)
			rel, _ := filepath.Rel(dir, p)
			all = append(all, file{Header: tar.Header{Typeflag: tar.TypeReg, Name: "./" + rel, Size: int64(len(b))}, data: string(b)})
		}
		return err
	})
	return tarOfHeaders(t, all...)
}

func TestRandomImages(t *testing.T) {
	img, err := random.Image(50_000, 100)
	if err != nil {
		t.Fatal(err)
	}
	cf, _ := img.ConfigFile()
	cf = cf.DeepCopy()
	layers, _ := img.Layers()
	i, err := open(t, layoutOf(t, imageOfLayers(t, cf.Config, layers...)), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := root(t, i); err != nil {
		t.Error(err)
	}
}

func FuzzLayer(f *testing.F) {
	for _, entries := range [][]string{{"a/b=1", "c->a", "c/d=>a/b", "a/.wh.b=", ".wh..wh..opq="}, {"x=>../../y", "../z/"}} {
		f.Add(tarOf(f, entries...))
		f.Add(zipped(f, tarOf(f, entries...)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr := newTree(Limits{Entries: 1000, Metadata: 1 << 20, Unpacked: 1 << 20}.complete())
		for range 2 {
			r, end, err := decompress(bytes.NewReader(data))
			if err != nil {
				return
			}
			m := &meter{r: r, hash: noHash{}, what: "it", max: func() int64 { return 1 << 20 }}
			err = tr.apply(context.Background(), m)
			end()
			if err != nil {
				if !errors.Is(err, ErrInvalid) {
					t.Fatalf("error of another kind: %v", err)
				}
				return
			}
		}
		r := &Root{image: &Image{limits: DefaultLimits}, tree: tr}
		r.image.Config.User = "7:7"
		r.Account()
		for _, n := range r.tree.finish(2)[0] {
			t.Fatal(n)
		}
	})
}

type noHash struct{}

func (noHash) Write(p []byte) (int, error) { return len(p), nil }
func (noHash) Sum(b []byte) []byte         { return b }
func (noHash) Reset()                      {}
func (noHash) Size() int                   { return 0 }
func (noHash) BlockSize() int              { return 1 }

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"digest":"sha256:00","size":1,"platform":{"os":"linux","architecture":"amd64"}}]}`))
	f.Add([]byte(`{"os":"linux","architecture":"amd64","config":{"Env":["A=b"],"User":"1:2"},"rootfs":{"diff_ids":["sha256:00"]}}`))
	f.Add([]byte(`[{"Config":"c","RepoTags":["a:1"],"Layers":["l"]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if index, is, err := parseIndex(data); err == nil && is {
			choose(index.Manifests)
		}
		if m, err := parseManifest(data, DefaultLimits); err == nil {
			for _, l := range m.Layers {
				if strings.Contains(l.Digest.Hex, "/") || l.Size < 0 {
					t.Fatal(l)
				}
			}
		}
		c, _, err := parseConfig(data, 1)
		if err == nil && !strings.HasPrefix(c.Workdir, "/") {
			t.Fatal(c.Workdir)
		}
	})
}

func TestNames(t *testing.T) {
	for ref, want := range map[string]string{
		"python:3.12-slim": "python-3-12-slim", "localhost/a/b": "b", "r.example:5000/x/y:latest": "y",
		"a/b@sha256:" + strings.Repeat("ab", 32): "b-abababababab", "debian": "debian",
	} {
		if got := NameOf(ref); got != want {
			t.Errorf("NameOf(%q) is %q, want %q", ref, got, want)
		}
	}
	for s, want := range map[string]bool{
		"base": false, "python-numpy": false, "recipes/base": false, "./x:1": false, "/tmp/a:b": false, "python:3": true,
		"localhost/app": true, "r.example/app": true, "r:5000/app": true, "a/b@sha256:" + strings.Repeat("ab", 32): true,
		"team/app": false, "UPPER:1": false, "": false,
	} {
		if got := IsReference(s); got != want {
			t.Errorf("IsReference(%q) is %t", s, got)
		}
	}
	if got := NameOfFile("/x/my app.tar.gz"); got != "my-app" {
		t.Error(got)
	}
}
