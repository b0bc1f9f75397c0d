// Package appliance runs the appliance: a small Linux under QEMU with forkd
// inside, for hosts whose own KVM is missing or useless. It owns the QEMU
// process, its state directory, its initramfs and its data disk; what happens
// inside after the kernel's start is package guest's. The CLI and the test
// bench (package testbench) call it; users know an appliance as "the machine".
// The trap: it outlives the process that started it, so nothing about it may be
// remembered in memory only, and a PID means nothing without the start time
// beside it.
package appliance
