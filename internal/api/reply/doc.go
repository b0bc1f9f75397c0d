// Package reply sends every JSON answer of the control APIs. Charge counts the answer in the
// tenant's share of the memory for requests in flight (package membudget). Write encodes it in
// pieces. A slow client therefore holds the answer once, counted, and one encoded piece. The
// package does not choose statuses and headers; httpapi and e2bapi do. The trap: Write comes after
// the status, so Charge must make all refusals.
package reply
