// Package guestmem is a VM's guest-physical memory in this process: the reserved address range, the
// mappings in it (zero pages at boot, the snapshot's layers copy-on-write after a fork), and
// bounds-checked access for devices. It does not know KVM; package vmm registers the regions. Bytes
// returned by Slice change whenever the guest writes, so copy a value before checking it.
package guestmem
