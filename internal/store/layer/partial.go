package layer

import (
	"os"
	"path/filepath"
)

// Names in the folder of a layer that has not arrived whole (package partial).
const (
	// PartialData is the layer's file, with holes for absent content.
	PartialData = "data"
	// PartialMark is an empty file that exists once the data is whole and verified.
	PartialMark = "complete"
)

// PartialComplete reports whether the data in the folder is whole.
func PartialComplete(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, PartialMark))
	return err == nil
}
