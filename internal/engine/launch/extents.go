package launch

import (
	"slices"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// MemoryExtents returns the mappings of a memory image. Ranges without a layer are mapped as zero
// pages, since the address space is only reserved before.
func MemoryExtents(image *layer.Image) []extent.Extent {
	return slices.Collect(extent.Filled(image.Extents(), 0, image.Size()))
}

// DiskBase returns the extents of an image of a disk of size bytes, which may end within the
// image's last block.
func DiskBase(image *layer.Image, size int64) []extent.Extent {
	return slices.Collect(extent.Within(image.Extents(), 0, size))
}

// LayeredDisk returns a disk over a snapshot's layers, without its overlay yet.
func LayeredDisk(image *layer.Image, size int64) vmm.Disk {
	return vmm.Disk{Size: size, Base: DiskBase(image, size)}
}

// sourceDisks returns a snapshot's disks for a child, and the layers of the writable ones, in
// order.
func sourceDisks(files *snapshot.Files) (disks []vmm.Disk, bases [][]layer.ID) {
	for i, d := range files.Manifest.Disks {
		if d.ReadOnly {
			disks = append(disks, vmm.Disk{File: files.File(d.File), ReadOnly: true})
			continue
		}
		disks = append(disks, LayeredDisk(files.Disks[i].Image, d.Bytes))
		bases = append(bases, d.Layers)
	}
	return disks, bases
}
