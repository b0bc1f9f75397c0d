// Package image builds and stores the files that a guest boots from: a kernel, an initramfs with the agent, a
// read-only root file system, and metadata. It owns the recipe format, the build (from Debian packages, cached by
// content), the store's directory and the export stream. It starts no VM and knows no snapshot tags. The CLI
// builds images; the daemon stores and reads them. Beware: files in the store are hard links into the build
// cache, so they must not be written in place.
package image
