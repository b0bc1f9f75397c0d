// Package ui prints the output of the CLI: tables and JSON on standard output, and notes, progress
// and errors on standard error. It owns no command and calls no daemon. The commands of forkd and
// forkd-bench use it. The trap: standard output is only for results, because users pipe it. Output
// for a watching user goes to standard error, and is off with --quiet.
package ui
