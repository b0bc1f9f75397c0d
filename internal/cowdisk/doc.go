// Package cowdisk is a writable disk over a read-only base: what the guest has
// written lies in a sparse file of its own, everything else comes from the
// base's extents. It is a backend of virtio-blk. It opens and closes no files;
// the daemon makes the own file, the VMM is handed all of them.
//
// The own file holds a block at the block's own offset, behind that a bitmap
// that says which blocks are own, and a trailer (docs/formats/own-disk.md). An
// own block that is a hole reads as zeros: so a discard frees room.
//
// The trap is the order: a bit on the disk before its block would make the
// block read as zeros after a crash, although its sectors were never written.
// So bits stay in memory until a flush has made the blocks durable. Writes that
// were never flushed may be lost by a crash, as with any disk that has a cache.
package cowdisk
