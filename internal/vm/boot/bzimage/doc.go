// Package bzimage turns a distribution's kernel file into the ELF that a VMM
// loads: it finds the compressed vmlinux inside an x86 bzImage and unpacks it; an
// ELF passes through. It owns the bzImage container and nothing about loading a
// kernel into memory (package boot does that). Kernel packages and images call it.
// The trap: the payload is not the whole story. Most formats have a 4-byte size
// behind it, and a relocation table follows the ELF once unpacked; both are cut off.
package bzimage
