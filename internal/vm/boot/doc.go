// Package boot puts an operating system into guest memory: the kernel's ELF
// segments, the initramfs, the command line, boot parameters, descriptor and
// page tables, ACPI tables. It knows no KVM: it fills memory and says with which
// registers the first vCPU starts. Formats of kernel files are in boot/bzimage.
// The trap: everything placed here lies below 1 MiB or in the device hole at
// addresses that map.go alone decides.
//
// Sources: Linux Documentation/arch/x86/boot.rst (64-bit boot protocol, zero
// page), Intel SDM volume 3 (paging, segmentation).
package boot
