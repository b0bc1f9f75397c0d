// Package inventory tells what is in a guest: the files of its root, its
// processes with their memory, its packages. It reads and changes nothing, keeps
// nothing between calls, and its one caller is the agent's RPC of that name. The
// trap: it is streamed, and the host holds two streams against each other, so
// the order of the files is part of the contract.
package inventory
