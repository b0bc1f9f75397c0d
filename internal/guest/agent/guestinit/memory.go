package guestinit

import "os"

const (
	// minTTLFile is the shortest time in ms that recently used memory stays, of the kernel's multi-generational LRU.
	// Source: admin-guide/mm/multigen_lru.rst.
	minTTLFile = "/sys/kernel/mm/lru_gen/min_ttl_ms"
	minTTL     = "1000" // the kernel's recommendation for interactive systems
)

// killEarly lets the kernel kill a process as soon as memory that was used within the last second does not fit. By
// default it first discards the programs' code, again and again, and reads it back from the disk: a guest without
// swap, whose memory is full, then stands still for a minute. A kernel without the file keeps the default.
func killEarly() {
	_ = os.WriteFile(minTTLFile, []byte(minTTL), 0)
}
