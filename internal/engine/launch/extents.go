package launch

import (
	"slices"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// MemoryExtents are the mappings that show an image of memory. What no layer covers
// is zero pages: the address space is only reserved before.
func MemoryExtents(image *layer.Image) []extent.Extent {
	return slices.Collect(extent.Filled(image.Extents(), 0, image.Size()))
}

// DiskBase are the extents that show an image of a disk of size bytes, which may
// end within the image's last block.
func DiskBase(image *layer.Image, size int64) []extent.Extent {
	return slices.Collect(extent.Within(image.Extents(), 0, size))
}

// LayeredDisk is a disk over a snapshot's layers, without its overlay yet.
func LayeredDisk(image *layer.Image, size int64) vmm.Disk {
	return vmm.Disk{Size: size, Base: DiskBase(image, size)}
}

// sourceDisks are a snapshot's disks for a child, and the layers of those that it
// can write to, in their order.
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
