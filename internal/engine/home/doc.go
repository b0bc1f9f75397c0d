// Package home opens what an engine works in: its two directories, which it locks, and the
// stores in them. It owns the locks and the names directly below those directories; what lies
// deeper is for whoever it hands the folder or the store to. Only package engine uses it. The
// trap: what lies in the run directory decides which processes are ended and which files are
// removed, so that it must be this user's alone (package rundir) before anything there is read.
package home
