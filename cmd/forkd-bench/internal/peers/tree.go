package peers

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// PackTree writes a root tree as a tar file: folders, regular files and links. It leaves out other
// files, such as devices, because guests have their own.
func PackTree(w io.Writer, root string) error {
	t := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if mode := d.Type(); !mode.IsDir() && !mode.IsRegular() && mode != fs.ModeSymlink {
			return nil
		}
		return packEntry(t, path, name, d)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", root, err)
	}
	return t.Close()
}

func packEntry(t *tar.Writer, path, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Format = name, tar.FormatGNU // a format that busybox's tar can read
	// GNU tar stores these two times where ustar has the name's prefix, and busybox would take them
	// for the prefix.
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	if err := t.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(t, f)
	return err
}
