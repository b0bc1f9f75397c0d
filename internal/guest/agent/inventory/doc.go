// Package inventory lists the contents of a guest: the files of its root, its processes with their
// memory, and its packages. It does not read the contents of the listed files, changes no files and
// keeps no state between calls. Its only caller is the agent's RPC of the same name. The host
// compares two of its streams, so the order of the files is part of the contract.
package inventory
