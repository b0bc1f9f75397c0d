// Package vmproc owns the VM processes: it spawns and adopts them, watches for their
// end, keeps a journal of each (so that the next daemon finds it), and the overlay
// files that they write their disks to. It knows neither what runs in a VM nor whose
// it is: who dials from the guest is answered by a dialer that comes in from outside.
// The trap: a process outlives the daemon, so nothing of it may be in memory alone.
package vmproc
