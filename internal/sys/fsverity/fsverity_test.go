package fsverity

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"
)

func TestTheStructureIsTheKernels(t *testing.T) {
	if n := unsafe.Sizeof(enableArg{}); n != 128 { // the size is part of FS_IOC_ENABLE_VERITY
		t.Errorf("it has %d bytes", n)
	}
}

// Either the file can no longer be opened for writing, or the file system reports that it lacks fs-verity.
func TestProbe(t *testing.T) {
	dir := t.TempDir()
	if err := Probe(dir); err != nil && !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	enabled := Enable(f) == nil
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		w.Close()
	}
	if enabled != (err != nil) {
		t.Errorf("enabled %v, but opening it for writing says %v", enabled, err)
	}
	if enabled && Enable(f) != nil {
		t.Error("a second time is an error")
	}
}
