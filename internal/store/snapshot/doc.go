// Package snapshot stores snapshots on disk. Each tag has a directory with the VM's state and a manifest, which
// lists every file and its size. Memory and writable disks consist of layers (package layer/store). The package
// owns the manifest's format, crash-safe writing, checked reading and the content digests. It does not know VMs
// or processes. The daemon's domain (package sandbox) calls it. Beware: a directory is a snapshot only once it
// has a manifest, so only Draft.Commit may write one. A layer is kept for the snapshot only from the pin on,
// which Commit sets before.
package snapshot
