// Package overlay is a writable disk: a sparse overlay file that takes what the guest
// writes, over read-only backing extents from which everything else comes, as in a
// qcow2 image with a backing file. It is a backend of virtio-blk. It opens and closes no files;
// the daemon makes the overlay file, the VMM is handed all of them.
//
// The overlay file holds a block at the block's own offset, behind that a bitmap
// that says which blocks are allocated, and a trailer (docs/inside/formats/overlay.md). An
// allocated block that is a hole reads as zeros: so a discard frees room.
//
// The trap is the order: a bit on the disk before its block would make the
// block read as zeros after a crash, although its sectors were never written.
// So bits stay in memory until a flush has made the blocks durable. Writes that
// were never flushed may be lost by a crash, as with any disk that has a cache.
package overlay
