// Package receipt is the record that every fork, branch, rollback and snapshot
// leaves: where it came from, what was captured and how, who the guest was told
// to be, and what it answered to prove it. It owns the format
// (docs/inside/formats/receipt.md), its checks, and the directory of records, which
// stay when what they tell of is gone. The engine writes them, off the critical
// path; it knows nothing of sandboxes itself. The trap: names, errors and lists
// of a receipt come from guests in part. They are bounded here, and cleaned
// where they are shown.
package receipt
