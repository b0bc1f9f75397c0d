// Package guestdump shows the state of a snapshot's guest: registers, stack and clocks of its
// vCPUs, and the spin lock that one waits for, with the symbols of the guest's kernel. It reads
// only the saved state and the memory image, and runs offline. It is for finding out why a guest
// hangs. Memory and state are the guest's, so no address in them is trusted, and each walk is
// bounded.
package guestdump
