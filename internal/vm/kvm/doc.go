// Package kvm is the kernel's KVM interface: ioctls and their structures, without policy. A System
// is /dev/kvm; it creates VMs, and a VM creates VCPUs. Each owns its file descriptor until Close.
// Packages vmm and hostcap and the appliance's init may use it. All vCPU calls except Kick must
// come from the one thread that runs the vCPU.
//
// Source of numbers and layouts: Linux, include/uapi/linux/kvm.h and
// arch/x86/include/uapi/asm/kvm.h; semantics: Documentation/virt/kvm/api.rst.
package kvm
