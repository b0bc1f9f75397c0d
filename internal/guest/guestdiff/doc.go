// Package guestdiff holds two guests' inventories against each other: files,
// processes and their memory, packages. It owns the checks of what guests send
// and the meaning of "changed"; it forks nothing and dials nobody. Package sandbox
// calls it. The trap: both streams come from hostile guests, so nothing is kept
// of them but bounded lists, and a stream out of order ends the comparison.
package guestdiff
