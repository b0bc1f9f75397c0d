// Package overlay implements a writable disk: a sparse overlay file for the guest's writes, over read-only
// backing extents for all other content, as in a qcow2 image with a backing file. It is a backend of virtio-blk.
// It opens and closes no files: the daemon creates the overlay file, and the VMM is given all files.
//
// The overlay file holds each block at the block's own offset, followed by a bitmap of allocated blocks and a
// trailer (docs/inside/formats/overlay.md). An allocated block that is a hole reads as zeros, so a discard frees
// space.
//
// Beware of the order: if a bit reached the disk before its block, the block would read as zeros after a crash,
// although its sectors were never written. So bits stay in memory until a flush has made the blocks durable. A
// crash may lose writes that were never flushed, as with any disk that has a cache.
package overlay
