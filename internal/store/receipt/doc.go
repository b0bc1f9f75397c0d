// Package receipt implements the record of every fork, branch, rollback and snapshot: its source, the captured
// data and method, the identity given to the guest, and the guest's proof of it. The package owns the format
// (docs/inside/formats/receipt.md), its checks, and the directory of records. Records outlive their subjects. The
// engine writes them, off the critical path; the package itself does not know sandboxes. Beware: names, errors
// and lists in a receipt come partly from guests. They are bounded here, and sanitized where they are displayed.
package receipt
