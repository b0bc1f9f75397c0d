// Package ui is how the CLI speaks: tables and JSON on standard output, notes,
// progress and errors on standard error. It owns no command and asks no daemon;
// the commands of forkd and forkd-bench call it. The trap: standard output belongs to
// results alone, so that it can be piped; whatever is for a person watching
// goes to standard error and is silent with --quiet.
package ui
