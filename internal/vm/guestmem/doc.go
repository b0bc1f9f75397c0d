// Package guestmem is a VM's guest-physical memory in this process: the
// reserved address range, what is mapped over it (zero pages at boot, the
// snapshot's layers copy-on-write after a fork), and bounds-checked access for
// devices. It knows no KVM; package vmm registers the regions. The trap: bytes
// returned by Slice change under the reader whenever the guest writes, so
// anything that is checked must be copied first.
package guestmem
