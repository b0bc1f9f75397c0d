// Package erofs writes uncompressed EROFS images, the read-only file system of a guest's root. A tree of inodes is
// planned first: all sizes must be known, but no content is read. Then content is written in any order, directly to
// its place. It needs no privileges, because owners, device nodes and attributes are only data here, and never
// touch the host's file system. The same tree gives the same bytes. It does not read images.
package erofs
