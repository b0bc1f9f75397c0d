// Package agent is the guest's side of the contract between host and guest. It puts the services
// (procs, files, identity, interp) behind one HTTP/1.1 server. It does the wiring, decides which
// requests are allowed, and implements forkd's own Agent service. Only cmd/forkd-agent and tests
// build an Agent.
//
// The package runs inside the guest, so it must not import code of the host side. It must not wake
// up without a request: the memory of an idle clone must stay untouched.
package agent
