// Package guestdiff compares the inventories of two guests: files, processes with their memory, and
// packages. It checks the data from guests and defines when an entry counts as changed. Package
// sandbox calls it. Both streams come from hostile guests, so the package keeps only limited lists
// of them, and a stream out of order ends the comparison.
package guestdiff
