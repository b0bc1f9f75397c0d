// Package forkwire is the protocol of forks that a guest makes of itself:
// requests go from a program in the guest to its agent over a Unix socket and
// from the agent to the host over vsock, in one and the same form. It owns the
// messages, their limits and their reading and writing; who answers what is
// internal/guest/agent/forkcall's and internal/domain/sandbox's. The trap: both ends read
// what a guest wrote, and any program in the guest can write it, so nothing is
// read without a limit and every field is checked.
//
// docs/inside/formats/fork-call.md describes it.
package forkwire
