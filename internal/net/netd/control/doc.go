// Package control is the protocol between the daemon and forkd-net. It carries the list of VMs, the
// wire and the policy of each, and the results of their flows. The package contains both ends;
// neither interprets a policy.
//
// Messages are JSON over a SEQPACKET unix socket, with descriptors. A body over 64 KiB is in a
// sealed memfd. Each side requires the other to be its own user or root. The server answers the
// requests of one connection in order, so a Release sent after a Bind finds it done. An audit
// subscription has its own connection: a slow reader loses lines and does not block others.
package control
