//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A failed start removes its own files, and no files of a program that has begun to use the directory.
func TestAFailedStartRemovesOnlyItsFiles(t *testing.T) {
	dir := t.TempDir()
	run, data := filepath.Join(dir, "new", "run"), filepath.Join(dir, "new", "data")
	r := missing(run, data)
	for _, file := range []string{run + "/lock", run + "/forkd-run", run + "/vm/", data + "/events.boot",
		data + "/layers/pins/", data + "/images/.tmp-1/root.erofs"} {
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil && file[len(file)-1] != '/' {
			err = os.WriteFile(file, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.remove()
	if !isMissing(run) || !isMissing(data+"/layers") || !isMissing(data+"/events.boot") {
		t.Error("files of the failed start are left")
	}
	if isMissing(data + "/images/.tmp-1/root.erofs") {
		t.Error("the file of an image build is gone")
	}
	if err := os.RemoveAll(data + "/images"); err != nil {
		t.Fatal(err)
	}
	r.remove()
	if !isMissing(filepath.Join(dir, "new")) {
		t.Error("the directory above is left")
	}
}
