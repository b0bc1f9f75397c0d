// Package compare puts two builds of forkd, or two settings of one, beside each
// other. Each is a side: a daemon of its own with a store of its own. The sides
// take turns, A B B A and so on, so that what else the host does befalls both; of
// each figure come the ratio B to A and its 95 % interval. It owns the daemons that
// it starts, and ends them; it prints nothing. The trap: VM exits and faults are
// counted while a VM lives, so a lap reads them before it ends its children.
package compare
