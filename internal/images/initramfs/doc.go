// Package initramfs writes the archives that a kernel unpacks into its first root
// file system: cpio in the newc format, the same bytes for the same entries. It
// owns the format and the layout of a guest's initramfs; it reads no files and
// knows no kernel packages. Images and the appliance call it. The trap: an archive
// must not contain a path whose parent comes later, so Write sorts and adds parents.
//
// The format is written here, in twenty lines: the library that has it, u-root's
// pkg/cpio, is in a module of 52 MB with twelve more behind it.
package initramfs
