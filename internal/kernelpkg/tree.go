package kernelpkg

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// OpenTree reads an unpacked package: a directory with boot and lib/modules (or
// usr/lib/modules). Modules are read when they are asked for.
func OpenTree(dir string) (*Package, error) {
	p, err := openTree(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("open kernel tree %s: %w", dir, err)
	}
	return p, nil
}

func openTree(fsys fs.FS) (*Package, error) {
	var files []file
	for _, top := range []string{"boot", "lib/modules", "usr/lib/modules"} {
		if info, err := fs.Stat(fsys, top); err != nil || !info.IsDir() {
			continue
		}
		err := fs.WalkDir(fsys, top, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if len(files) > maxEntries {
				return fmt.Errorf("more than %d files", maxEntries)
			}
			if d.Type().IsRegular() && wants(name) {
				files = append(files, file{name, func() ([]byte, error) { return readCapped(fsys, name) }})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return assemble(files)
}

func readCapped(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, maxFile)
}

// readAll reads to the end, but not more than limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("larger than %d MiB", limit>>20)
	}
	return b, nil
}
