// Package netbench measures the network with guests, as a user of the daemon's API:
// forks, memory, streams and branches with network and without, in turn. It draws
// these figures and those of netnative; it prints nothing. The trap: streams and
// branches need an image with Python, and a port of the daemon's host that the daemon's
// operator has opened.
package netbench
