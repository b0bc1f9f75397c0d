// Package sshbridge is an SSH server for one sandbox, at the user's end of the connection. An SSH
// client starts it as its ProxyCommand and speaks to it over standard input and output. The bridge
// turns the channels of SSH into requests to the daemon: programs and terminals run by exec,
// forwarded connections go to the sandbox's localhost, and SFTP is a program in the guest.
//
// So a sandbox needs no SSH server, no key and no open port, and a paused or forked sandbox has no
// secret of SSH. The rights are those of the daemon's key. The client and the bridge belong to the
// same user and are connected by a pipe, so there is no authentication between them.
//
// The guest is hostile: it can choose the output and the exit codes of its programs, which is all
// that the client receives from it.
package sshbridge
