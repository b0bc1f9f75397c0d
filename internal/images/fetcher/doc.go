// Package fetcher is the process that fetches the rest of snapshots, and serves their files meanwhile. It mounts a FUSE
// file system whose files are those of package partial: a read of absent content waits for the registry. The process
// outlives the daemon, as the VMs do that have its files mapped, and ends when no file is open or missing. The daemon
// starts it and talks to it through its socket (Client). It holds the credentials of registries, in memory and in the
// run directory. The trap: if the process dies, VMs with its files mapped die too.
package fetcher
