// Package kvm is the kernel's KVM interface and nothing else: ioctls and the
// structures they take, without policy. A System is /dev/kvm, a VM and a VCPU
// are what it creates; each owns its file descriptor until Close. It may be used
// by packages vmm and hostcap, and by the appliance's init. The trap: all vCPU calls but Kick belong to
// the one thread that runs the vCPU.
//
// Source of numbers and layouts: Linux, include/uapi/linux/kvm.h and
// arch/x86/include/uapi/asm/kvm.h; semantics: Documentation/virt/kvm/api.rst.
package kvm
