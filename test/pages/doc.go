// Package pages runs the command blocks of the README and of docs/use, and compares their output
// with the pages. It owns the rules for blocks and the list of blocks that are not run. test/e2b
// calls Suite with its machine. The trap: a page is also a script, so each command needs what the
// commands above it made.
package pages
