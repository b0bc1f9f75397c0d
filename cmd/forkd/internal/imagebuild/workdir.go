package imagebuild

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const workPrefix = ".forkd-export-"

// justMade is the age below which a directory may not have its lock yet.
const justMade = time.Minute

// workDir is the directory of a running export, beside its file so that a rename completes it. Its lock ends with the
// process, which distinguishes it from the directory of a killed process.
type workDir struct {
	path string
	lock *os.File
}

// workIn makes a working directory in parent, after it has removed those of killed processes.
func workIn(parent string) (*workDir, error) {
	sweep(parent)
	path, err := os.MkdirTemp(parent, workPrefix)
	if err != nil {
		return nil, err
	}
	lock, err := os.Open(path)
	if err == nil {
		_, err = flock(lock)
	}
	if err != nil {
		lock.Close() // harmless if nil
		os.Remove(path)
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &workDir{path, lock}, nil
}

func (w *workDir) remove() {
	os.RemoveAll(w.path)
	w.lock.Close()
}

// sweep removes the working directories of killed exports. A failure leaves them for the next export: it is no reason
// to refuse this one. Another user's directory and a link are left alone.
func sweep(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if !strings.HasPrefix(e.Name(), workPrefix) || !e.IsDir() || err != nil || time.Since(info.ModTime()) < justMade {
			continue
		}
		path := filepath.Join(parent, e.Name())
		lock, err := os.Open(path)
		if err != nil {
			continue // gone, or another user's
		}
		if free, err := flock(lock); free && err == nil {
			os.RemoveAll(path)
		}
		lock.Close()
	}
}
