// Package server is forkd-spawn. It starts VMM processes in a jail for the daemon at the other end
// of a socket, reports their ends, and probes which parts of a jail this host supports. It starts
// no other programs and keeps no state: VMMs outlive it, and another forkd-spawn continues its
// work. Init is the other half, in the process that becomes the VMM. forkd-spawn has one processor
// for Go code (set by package client), so a blocking system call blocks everything.
package server
