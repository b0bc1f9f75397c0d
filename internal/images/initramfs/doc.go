// Package initramfs writes the archives that a kernel unpacks into its first root file system: cpio in the newc
// format, with the same bytes for the same entries. It owns the format and the layout of a guest's initramfs. It
// reads no files and does not know kernel packages. Images and the appliance use it. Beware: an archive must not
// contain a path before its parent, so Write sorts entries and adds parents.
//
// The format is implemented here in twenty lines: the library for it, u-root's pkg/cpio, is part of a module of
// 52 MB with twelve more dependencies.
package initramfs
