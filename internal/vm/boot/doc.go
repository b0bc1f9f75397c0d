// Package boot loads an operating system into guest memory: the kernel's ELF segments, the
// initramfs, the command line, boot parameters, descriptor and page tables, ACPI tables. It does
// not know KVM: it fills memory and returns the registers with which the first vCPU starts. Package
// boot/bzimage handles formats of kernel files. All addresses of its own data lie below 1 MiB or in
// the device hole, and only map.go assigns them.
//
// Sources: Linux Documentation/arch/x86/boot.rst (64-bit boot protocol, zero page), Intel SDM
// volume 3 (paging, segmentation).
package boot
