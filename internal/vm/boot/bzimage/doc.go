// Package bzimage extracts the ELF for a VMM from a distribution's kernel file: it finds the
// compressed vmlinux in an x86 bzImage and unpacks it; an ELF is returned as it is. It only handles
// the bzImage container; package boot loads a kernel into memory. Kernel packages and images use
// it. Two extras are cut off: most formats have a 4-byte size after the payload, and a relocation
// table follows the unpacked ELF.
package bzimage
