// Package usage reads what VMMs have used by the kernel's account: CPU time and
// page faults by /proc, VM exits and guests' page faults by KVM's counters in
// debugfs. These are what a host's noise moves less than times. It reads on the
// host that it runs on, and changes nothing but for a mount of debugfs that it
// takes back. The trap: KVM's counters are root's to read, and each VM's are under
// the thread that made it.
package usage
