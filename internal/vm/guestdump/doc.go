// Package guestdump shows where a guest stood in a snapshot: registers, stack and clocks of its vCPUs, and
// the spin lock that one waits for, with the names of the guest's kernel. It reads the saved state and the
// memory image only, and runs offline: it is for finding out why a guest hangs. The trap: memory and state are
// the guest's, so no address in them is believed, and each walk is bounded.
package guestdump
