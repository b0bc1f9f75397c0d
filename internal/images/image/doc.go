// Package image makes and keeps what a guest boots from: a kernel, an initramfs with
// the agent, a read-only root file system, and metadata. It owns the recipe format,
// the build (from Debian packages, cached by content), the store's directory and the
// export stream; it starts no VM and resolves no snapshot tags. The CLI builds, the
// daemon stores and reads. The trap: files in the store are hard links into the build
// cache, so nobody may write to them in place.
package image
