// Package compare measures two builds of forkd, or two settings of one build, beside each other.
// Each side has a daemon and a store. The sides take turns (A B, B A, A B), so other load on the
// host affects both. Each figure has the ratio B to A and its 95 % interval. The package owns its
// daemons, and ends them; it prints no output. The trap: VM exits and faults are counted only while
// a VM lives, so a lap reads them before it ends its children.
package compare
