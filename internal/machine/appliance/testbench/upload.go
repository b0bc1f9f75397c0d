package testbench

import (
	"archive/tar"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// kept is the number of test binaries that stay on the data disk for later runs.
const kept = 40

func (b *run1) uploadBinary(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := requireStatic(f); err != nil {
		return "", err
	}
	digest, size, err := digestOf(f)
	if err != nil {
		return "", err
	}
	to := path.Join(binDir, digest+"-"+path.Base(name))
	if err := b.put(f, size, digest, to); err != nil {
		return "", err
	}
	_, err = b.shell(`mkdir -p "$2"; cd "$1"; ls -t | tail -n +`+fmt.Sprint(kept+1)+` | xargs -r rm -f`, binDir, tmpDir)
	return to, err
}

// requireStatic rejects binaries for which the machine's kernel would report "no such file".
func requireStatic(f io.ReaderAt) error {
	e, err := elf.NewFile(f)
	if err != nil {
		return fmt.Errorf("read ELF: %w", err)
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("it is linked to a C library, and the machine has none: build with CGO_ENABLED=0")
		}
	}
	return nil
}

// uploadTestdata returns the working directory for the test, which contains the test data.
func (b *run1) uploadTestdata(dir string) (string, error) {
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		empty := path.Join(dataDir, "empty")
		_, err := b.shell(`mkdir -p "$1"`, empty)
		return empty, err
	}
	if err != nil {
		return "", err
	}
	if !st.IsDir() {
		return "", fmt.Errorf("%s is no directory", dir)
	}
	archive, err := os.CreateTemp("", "forkd-testdata-*.tar")
	if err != nil {
		return "", err
	}
	defer os.Remove(archive.Name())
	defer archive.Close()
	if err := writeTar(archive, dir); err != nil {
		return "", err
	}
	return b.unpack(archive)
}

func (b *run1) unpack(archive *os.File) (string, error) {
	digest, size, err := digestOf(archive)
	if err != nil {
		return "", err
	}
	to := path.Join(dataDir, digest)
	if err := b.put(archive, size, digest, to+".tar"); err != nil {
		return "", err
	}
	// Sync before the rename: a machine that is killed would otherwise leave empty files that every later run
	// uses.
	_, err = b.shell(`[ -d "$1.d" ] || { rm -rf "$1.new"; mkdir "$1.new"; tar -xf "$1.tar" -C "$1.new"; sync; mv "$1.new" "$1.d"; }`,
		to)
	return to + ".d", err
}

// writeTar writes regular files and directories. It omits times, so that the same content has the same digest.
func writeTar(w io.Writer, dir string) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.ToSlash(name), Mode: 0o755, Typeflag: tar.TypeDir}
		if d.IsDir() {
			return tw.WriteHeader(h)
		}
		info, err := os.Stat(name) // a link is replaced by its target
		if err != nil {
			return err
		}
		h.Typeflag, h.Size, h.Mode = tar.TypeReg, info.Size(), int64(info.Mode().Perm())
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		f, err := os.Open(name) // #nosec G122 -- the tree is the developer's own
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(tw, f)
		return err
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

// uploadFixtures creates the directory for kvmtest.Fixture. Files are stored by digest and linked, so that sets
// share equal files.
func (b *run1) uploadFixtures(dir string) (string, error) {
	names, err := fixtureNames(dir)
	if err != nil {
		return "", err
	}
	set := sha256.New()
	var links strings.Builder
	for _, name := range names {
		blob, err := b.uploadFixture(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(set, "%s %s\n", blob, name)
		fmt.Fprintf(&links, "%s %s\n", blob, name)
	}
	to := path.Join(fixturesDir, hex.EncodeToString(set.Sum(nil)[:12]))
	_, err = b.shell(`[ -d "$1" ] || { rm -rf "$1.new"; mkdir -p "$1.new"
		printf %s "$2" | while read -r blob name; do ln -f "$blob" "$1.new/$name"; done; mv "$1.new" "$1"; }`, to, links.String())
	return to, err
}

func fixtureNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.ContainsAny(e.Name(), " \t\n\\") {
			return nil, fmt.Errorf("fixture %q: white space in the name", e.Name())
		}
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (b *run1) uploadFixture(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	digest, size, err := digestOf(f)
	if err != nil {
		return "", err
	}
	to := path.Join(fixturesDir, "blobs", digest)
	return to, b.put(f, size, digest, to)
}

func digestOf(f *os.File) (string, int64, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", 0, err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return "", 0, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), n, nil
}
