// Package forkwire is the protocol by which a guest forks itself. Requests go from a program in the
// guest to its agent over a Unix socket, and from the agent to the host over vsock, in the same
// form. The package defines the messages and their limits, and reads and writes them. Packages
// internal/guest/agent/forkcall and internal/domain/sandbox answer the requests.
//
// Both ends read input from the guest, and any program in the guest can write it. So every read has
// a limit and every field is checked.
//
// The format is described in docs/inside/formats/fork-call.md.
package forkwire
