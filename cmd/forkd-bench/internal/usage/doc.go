// Package usage reads the usage of VMMs from the kernel: CPU time and page faults from /proc, VM
// exits and guests' page faults from KVM's counters in debugfs. Noise on the host affects these
// less than times. The package reads on its own host. It changes no state except for a mount of
// debugfs, which it removes again. The trap: only root can read KVM's counters, and the counters of
// a VM are listed under the thread that made it.
package usage
