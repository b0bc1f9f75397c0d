package sandbox

import (
	"github.com/forkd/forkd/internal/layer"
	"github.com/forkd/forkd/internal/snapshot"
	"github.com/forkd/forkd/internal/vmmctl"
)

// memorySegments are the mappings that show an image of memory, in rising order.
// What no layer covers is zero pages: the address space is only reserved before.
func memorySegments(image *layer.Image) []vmmctl.Segment {
	out := make([]vmmctl.Segment, 0, len(image.Segments())+1)
	at := int64(0)
	zero := func(to int64) {
		if to > at {
			out = append(out, vmmctl.Segment{Offset: at, Length: to - at})
		}
	}
	for _, s := range image.Segments() {
		zero(s.Offset)
		out = append(out, segmentOf(image, s))
		at = s.Offset + s.Length
	}
	zero(image.Size())
	return out
}

func segmentOf(image *layer.Image, s layer.Segment) vmmctl.Segment {
	return vmmctl.Segment{File: image.Layers()[s.Layer].File(), FileOffset: s.FileOffset, Offset: s.Offset, Length: s.Length}
}

// diskBase are the extents that show an image of a disk of size bytes, which may
// end within the image's last block.
func diskBase(image *layer.Image, size int64) []vmmctl.Segment {
	out := make([]vmmctl.Segment, 0, len(image.Segments()))
	for _, s := range image.Segments() {
		seg := segmentOf(image, s)
		if seg.Length = min(seg.Length, size-seg.Offset); seg.Length > 0 {
			out = append(out, seg)
		}
	}
	return out
}

// layeredDisk is a disk over a snapshot's layers, without its own file yet.
func layeredDisk(image *layer.Image, size int64) vmmctl.Disk {
	return vmmctl.Disk{Size: size, Base: diskBase(image, size)}
}

// sourceDisks are a snapshot's disks for a child, and the layers of those that it
// can write to, in their order.
func sourceDisks(files *snapshot.Files) (disks []vmmctl.Disk, bases [][]layer.ID) {
	for i, d := range files.Manifest.Disks {
		if d.ReadOnly {
			disks = append(disks, vmmctl.Disk{File: files.File(d.File), ReadOnly: true})
			continue
		}
		disks = append(disks, layeredDisk(files.Disks[i].Image, d.Bytes))
		bases = append(bases, d.Layers)
	}
	return disks, bases
}
