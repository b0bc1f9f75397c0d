// Package home opens the working directories of an engine: it locks the two directories and opens
// the stores in them. It owns the locks and the names directly below those directories; the
// packages that get a folder or store own the names below. Only package engine uses it. The content
// of the run directory decides which processes are ended and which files are removed. It must
// therefore belong to this user alone (package rundir) before any of it is read.
package home
