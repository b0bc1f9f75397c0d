// Package snapshot is the store of snapshots on disk: one directory per tag with
// the VM's state and a manifest that names every file and its size, and the layers
// (package layer/store) that memory and writable disks are made of. It owns the
// manifest's format, the crash-safe writing, the reading with its checks and the
// content digests; it knows no VM and no process. The daemon's domain (package
// sandbox) calls it. The trap: a directory is a snapshot only once its manifest is
// in it, so nothing but Draft.Commit may write one; and a layer is kept for it only
// from the pin on, which Commit makes before.
package snapshot
