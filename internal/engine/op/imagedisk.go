package op

import (
	"os"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// imageDisk returns a disk over the base layer that holds an image's empty disk.
func imageDisk(base *os.File) (vmm.Disk, error) {
	l, err := layer.Open(base)
	var image *layer.Image
	if err == nil {
		image, err = layer.Assemble([]*layer.Layer{l})
	}
	if err != nil {
		return vmm.Disk{}, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonImageDamaged, "the image's empty disk: %w", err)
	}
	return launch.LayeredDisk(image, image.Size()), nil
}

// imageDiskSize returns the size of the disk in an image's file.
func imageDiskSize(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	d, err := imageDisk(f)
	return d.Size, err
}
