package arch

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// maxFile bounds a file of the tree, in bytes: what is larger was built, or fetched, and is no source.
const maxFile = 1 << 20

func TestNothingBuiltIsInTheTree(t *testing.T) {
	for _, top := range []string{"api", "client", "cmd", "docs", "internal", "packaging", "recipes", "scripts", "test", ""} {
		root := filepath.Join("../..", top)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && path == root {
				return err
			}
			if d.IsDir() {
				if top == "" { // the others are looked at by name, and .git, .cache and bin are not the tree's
					return filepath.SkipDir
				}
				return nil
			}
			info, err := d.Info()
			if err == nil && info.Size() > maxFile {
				t.Errorf("%s has %d bytes, want at most %d: is it a program that was built here?", path, info.Size(), maxFile)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
