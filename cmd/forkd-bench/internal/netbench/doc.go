// Package netbench measures the network with guests, as a user of the daemon's API: forks, memory,
// streams and branches with network and without, in turn. It draws these figures and the figures of
// netnative; it prints no output. The trap: streams and branches need an image with Python, and a
// port of the daemon's host allowed by the operator.
package netbench
