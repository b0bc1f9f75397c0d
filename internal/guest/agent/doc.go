// Package agent is the guest's side of the host-guest contract: it puts the
// services (procs, files, identity, interp) behind one HTTP/1.1 server. It owns
// the wiring, who may ask what, and forkd's own Agent service; the services own
// what they serve. Only cmd/forkd-agent and tests build one. The trap: it runs
// inside the guest, so nothing of the host side may be imported, and nothing in
// it may wake up by itself: an idle clone's memory must stay untouched.
package agent
