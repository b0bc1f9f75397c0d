// Package appliance runs the appliance: a small Linux under QEMU with forkd inside, for hosts without a usable
// KVM. It owns the QEMU process, its state directory, its initramfs and its data disk. Package guest handles
// everything inside after the kernel has started. The CLI and the test bench (package testbench) call it; users
// call an appliance "the machine". Beware: it outlives the process that started it, so no state may be kept in
// memory only, and a PID is valid only together with its start time.
package appliance
