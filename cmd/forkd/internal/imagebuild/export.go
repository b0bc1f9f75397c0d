package imagebuild

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/forkd/forkd/client"
)

// Formats of an exported container image.
const (
	FormatDocker = "docker" // as of docker save
	FormatOCI    = "oci"    // an OCI layout in a tar file
)

// Export writes the root file system and the configuration of a snapshot as a container image.
type Export struct {
	Client    *client.Client
	Tag       string          // of the snapshot
	Reference string          // name of the image, such as app:latest
	Format    string          // FormatDocker or FormatOCI
	File      string          // to write
	Progress  func(bytes int) // the size of each piece of the root; may be nil
}

// tarScript writes the root file system without the parts that belong to a running guest and to
// forkd.
const tarScript = `cd / && exec tar --one-file-system --numeric-owner -cf - ` +
	`--exclude=./proc/* --exclude=./sys/* --exclude=./dev/* --exclude=./run/* --exclude=./tmp/* ` +
	`--exclude=./etc/forkd --exclude=./usr/local/bin/forkd-* --exclude=./etc/resolv.conf ` +
	`--exclude=forkd.py .`

// Write writes the image. The file is there only if it is complete.
func (e Export) Write(ctx context.Context) (err error) {
	ref, err := name.NewTag(e.Reference)
	if err != nil {
		return fmt.Errorf("name of the image: %w", err)
	}
	b := Builder{Client: e.Client, Report: nothing{}}
	id, err := b.fork(ctx, e.Tag, "none")
	if err != nil {
		return err
	}
	defer b.kill(ctx, id)
	conf, err := readConfig(ctx, e.Client, id)
	if err != nil {
		return err
	}
	work, err := workIn(filepath.Dir(e.File))
	if err != nil {
		return err
	}
	defer work.remove()
	root := filepath.Join(work.path, "root.tar")
	if err := e.fetch(ctx, id, root); err != nil {
		return err
	}
	return e.assemble(work.path, root, conf.Config, ref)
}

// assemble writes the image of a root file system to a file in the directory work, and moves it to its place.
func (e Export) assemble(work, root string, c Config, ref name.Tag) error {
	img, err := imageOf(root, c)
	if err != nil {
		return err
	}
	out := filepath.Join(work, "image.tar")
	if e.Format == FormatOCI {
		err = writeLayout(filepath.Join(work, "layout"), out, ref, img)
	} else {
		err = tarball.WriteToFile(out, ref, img)
	}
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return os.Rename(out, e.File)
}

// fetch writes the root file system of a sandbox to a file.
func (e Export) fetch(ctx context.Context, id, file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	st, err := e.Client.ExecStream(ctx, id, client.ExecOptions{
		Args: []string{"/bin/sh", "-c", tarScript}, User: "root", Cwd: "/",
		Stdout: counted{f, e.Progress}, Stderr: &limited{w: &said, left: 4096},
	})
	err = errors.Join(err, f.Close())
	if err == nil && st.ExitCode > 1 { // 1: a file changed meanwhile
		err = fmt.Errorf("tar in snapshot %s ended with exit code %d: %s", e.Tag, st.ExitCode,
			strings.TrimSpace(said.String()))
	}
	return err
}

// imageOf returns an image of one layer.
func imageOf(root string, c Config) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(root)
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	f, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	f = f.DeepCopy()
	f.OS, f.Architecture = "linux", "amd64"
	f.Config = v1.Config{Entrypoint: c.Entrypoint, Cmd: c.Cmd, User: c.User, WorkingDir: c.Workdir, Labels: c.Labels,
		StopSignal: c.StopSignal, Shell: c.Shell}
	for k, v := range c.Env {
		f.Config.Env = append(f.Config.Env, k+"="+v)
	}
	slices.Sort(f.Config.Env)
	for _, p := range c.ExposedPorts {
		f.Config.ExposedPorts = set(f.Config.ExposedPorts, p)
	}
	for _, v := range c.Volumes {
		f.Config.Volumes = set(f.Config.Volumes, v)
	}
	if h := c.Healthcheck; h != nil {
		f.Config.Healthcheck = &v1.HealthConfig{Test: h.Test, Retries: h.Retries, Interval: duration(h.IntervalSecs),
			Timeout: duration(h.TimeoutSecs), StartPeriod: duration(h.StartPeriodSecs)}
	}
	return mutate.ConfigFile(img, f)
}

// duration returns a number of seconds. One that does not fit becomes the largest or smallest duration.
func duration(seconds float64) time.Duration {
	ns := seconds * float64(time.Second)
	switch {
	case math.IsNaN(ns) || ns <= math.MinInt64:
		return math.MinInt64
	case ns >= math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(math.Round(ns))
}

func set(m map[string]struct{}, key string) map[string]struct{} {
	if m == nil {
		m = map[string]struct{}{}
	}
	m[key] = struct{}{}
	return m
}

// writeLayout writes an OCI layout as a tar file.
func writeLayout(dir, file string, ref name.Tag, img v1.Image) error {
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref.TagStr()})
	if err := p.AppendImage(img, names); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return addFile(w, dir, at)
	})
	return errors.Join(err, w.Close(), f.Close())
}

func addFile(w *tar.Writer, dir, at string) error {
	rel, err := filepath.Rel(dir, at)
	if err != nil {
		return err
	}
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	h := tar.Header{Name: filepath.ToSlash(rel), Mode: 0o644, Size: st.Size(), Typeflag: tar.TypeReg}
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// counted counts what is written.
type counted struct {
	io.Writer
	count func(int)
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if c.count != nil {
		c.count(n)
	}
	return n, err
}

// limited keeps the beginning of what is written.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	_, err := l.w.Write(p[:n])
	return len(p), err
}

// nothing is a Report that drops all.
type nothing struct{}

func (nothing) Step(int, int, string) {}
func (nothing) Done(time.Duration)    {}
func (nothing) Output([]byte)         {}
func (nothing) Warn(string)           {}
