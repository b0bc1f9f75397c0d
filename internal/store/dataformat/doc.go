// Package dataformat marks a data directory with the number of its format, so that a program that is
// too old refuses it before it changes anything. It owns the file format.json. The engine writes the
// mark while it holds the lock of the directory; the daemon checks it before it opens anything.
package dataformat
