// ociimage writes an image of the daemon as an OCI layout in a tar file: static programs on an empty
// root. The same programs and SOURCE_DATE_EPOCH give the same bytes (README.md).
//
//	ociimage --version 0.1.0 --programs DIR --recipes DIR --doc FILE --doc FILE IMAGE.tar
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// spec is what an image is made from.
type spec struct {
	version, revision string
	programs          string // a folder
	recipes           string // a folder
	docs              []string
	date              time.Time
}

func main() {
	var s spec
	flag.StringVar(&s.version, "version", "", "the version of the programs")
	flag.StringVar(&s.revision, "revision", "", "the commit of the programs")
	flag.StringVar(&s.programs, "programs", "", "the folder with the static programs")
	flag.StringVar(&s.recipes, "recipes", "", "the folder with recipes")
	flag.Func("doc", "a file for /usr/share/doc/forkd; may be repeated", func(file string) error {
		s.docs = append(s.docs, file)
		return nil
	})
	flag.Parse()
	n, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	switch {
	case err != nil:
		err = fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	case flag.NArg() != 1 || s.version == "" || s.programs == "" || s.recipes == "":
		err = errors.New("usage: ociimage --version VERSION --programs DIR --recipes DIR IMAGE.tar")
	default:
		s.date = time.Unix(n, 0).UTC()
		err = s.write(flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

// write writes the image. The file is there only if it is complete.
func (s spec) write(file string) error {
	img, err := s.image()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(file), ".ociimage-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	dir := filepath.Join(work, "layout")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	err = p.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}),
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": s.version}))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	a := archive{w: tar.NewWriter(&out), date: s.date}
	if err := errors.Join(a.tree(dir, "", fixed(0o644)), a.w.Close()); err != nil {
		return err
	}
	complete := filepath.Join(work, "image.tar")
	if err := os.WriteFile(complete, out.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(complete, file)
}

func (s spec) image() (v1.Image, error) {
	base, err := s.layer(archive.skeleton)
	if err != nil {
		return nil, err
	}
	recipes, err := s.layer(func(a archive) error { return a.tree(s.recipes, "usr/share/forkd/recipes", executable) })
	if err != nil {
		return nil, err
	}
	programs, err := s.layer(func(a archive) error {
		if err := a.tree(s.programs, "usr/lib/forkd", fixed(0o755)); err != nil {
			return err
		}
		for _, doc := range s.docs {
			if err := a.file(doc, "usr/share/doc/forkd/"+filepath.Base(doc), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var adds []mutate.Addendum
	for _, l := range []struct {
		layer v1.Layer
		by    string
	}{{base, "folders and users"}, {recipes, "recipes"}, {programs, "programs"}} {
		adds = append(adds, mutate.Addendum{Layer: l.layer, MediaType: types.OCILayer,
			History: v1.History{Created: v1.Time{Time: s.date}, CreatedBy: "forkd release: " + l.by}})
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.Append(img, adds...); err != nil {
		return nil, err
	}
	f, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	f = f.DeepCopy()
	f.OS, f.Architecture, f.Created = "linux", "amd64", v1.Time{Time: s.date}
	f.Config = v1.Config{
		Entrypoint: []string{"/usr/lib/forkd/forkd", "serve"},
		Env:        []string{"PATH=/usr/bin:/usr/lib/forkd", "HOME=/root"},
		Labels:     s.labels(),
		StopSignal: "SIGTERM",
		Volumes:    map[string]struct{}{"/var/lib/forkd": {}, "/run/forkd": {}},
		WorkingDir: "/",
	}
	return mutate.ConfigFile(img, f)
}

func (s spec) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       "forkd",
		"org.opencontainers.image.description": "The daemon of forkd, which forks, branches and rolls back microVMs",
		"org.opencontainers.image.version":     s.version,
		"org.opencontainers.image.created":     s.date.Format(time.RFC3339),
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://github.com/forkd/forkd",
	}
	if s.revision != "" {
		labels["org.opencontainers.image.revision"] = s.revision
	}
	return labels
}

// layer returns a layer with what fill writes.
func (s spec) layer(fill func(archive) error) (v1.Layer, error) {
	var out bytes.Buffer
	a := archive{w: tar.NewWriter(&out), date: s.date, folders: map[string]bool{}}
	if err := errors.Join(fill(a), a.w.Close()); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// archive is a tar file whose entries have one date and belong to root.
type archive struct {
	w       *tar.Writer
	date    time.Time
	folders map[string]bool // that are there; nil: none are wanted
}

// skeleton writes what programs expect on every root.
func (a archive) skeleton() error {
	for _, dir := range []struct {
		name string
		mode int64
	}{{"dev", 0o755}, {"etc", 0o755}, {"proc", 0o755}, {"root", 0o700}, {"run", 0o755}, {"run/forkd", 0o700},
		{"sys", 0o755}, {"tmp", 0o1777}, {"usr", 0o755}, {"usr/bin", 0o755}, {"var", 0o755}, {"var/lib", 0o755},
		{"var/lib/forkd", 0o700}, {"var/tmp", 0o1777}} {
		if err := a.add(tar.Header{Typeflag: tar.TypeDir, Name: dir.name + "/", Mode: dir.mode}, nil); err != nil {
			return err
		}
	}
	command := tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/bin/forkd", Linkname: "../lib/forkd/forkd", Mode: 0o777}
	if err := a.add(command, nil); err != nil {
		return err
	}
	for _, file := range []struct{ name, text string }{
		{"etc/group", "root:x:0:\n"},
		{"etc/passwd", "root:x:0:0:root:/root:/nonexistent\n"},
	} {
		if err := a.add(tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: 0o644}, []byte(file.text)); err != nil {
			return err
		}
	}
	return nil
}

// fixed returns one mode for all files.
func fixed(mode int64) func(fs.FileInfo) int64 { return func(fs.FileInfo) int64 { return mode } }

// executable keeps only whether a file can be executed: the rest depends on a user's umask.
func executable(info fs.FileInfo) int64 {
	if info.Mode()&0o100 != 0 {
		return 0o755
	}
	return 0o644
}

// tree writes the files of a folder, sorted, with the folders around them.
func (a archive) tree(dir, to string, mode func(fs.FileInfo) int64) error {
	return filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return a.file(at, path.Join(to, filepath.ToSlash(rel)), mode(info))
	})
}

func (a archive) file(at, name string, mode int64) error {
	info, err := os.Lstat(at)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", at)
	}
	data, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	for i := range name {
		if parent := name[:i]; name[i] == '/' && a.folders != nil && !a.folders[parent] {
			a.folders[parent] = true
			if err := a.add(tar.Header{Typeflag: tar.TypeDir, Name: parent + "/", Mode: 0o755}, nil); err != nil {
				return err
			}
		}
	}
	return a.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, data)
}

func (a archive) add(h tar.Header, data []byte) error {
	h.ModTime, h.Size, h.Format = a.date, int64(len(data)), tar.FormatUSTAR
	h.Name = strings.TrimPrefix(h.Name, "/")
	if err := a.w.WriteHeader(&h); err != nil {
		return err
	}
	_, err := a.w.Write(data)
	return err
}
