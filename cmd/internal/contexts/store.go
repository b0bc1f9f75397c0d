package contexts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/cmd/internal/hints"
)

// Path returns the path of the user's file.
func Path() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "forkd", "config.yaml"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find home directory: %w", err)
	}
	return filepath.Join(home, ".config", "forkd", "config.yaml"), nil
}

// Load reads a file. A missing file has no contexts.
func Load(path string) (File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return File{}, nil
	}
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return File{}, errors.Join(err, fmt.Errorf("%s: not a regular file", path))
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return File{}, err
	}
	out, err := Parse(content)
	if err != nil {
		return File{}, hints.With(fmt.Errorf("%s: %w", path, err),
			"correct the file; meanwhile --context "+Default+" ignores it")
	}
	return out, nil
}

// Change reads a file, changes it and writes it. Readers see the old or the new content, never a
// part. A link to the file stays a link.
func Change(path string, change func(*File) error) error {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	f, err := Load(path)
	if err != nil {
		return err
	}
	if err := change(&f); err != nil {
		return err
	}
	content, err := f.Format()
	if err != nil {
		return err
	}
	if err := replace(path, content); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// replace writes a file for this user only, and waits until the disk has it.
func replace(path string, content []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".config-*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	syncDir(dir)
	return nil
}

// syncDir makes a new name durable, where the system can do this. Windows cannot sync directories.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		d.Close()
	}
}
