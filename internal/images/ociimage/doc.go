// Package ociimage makes guest roots from images of container tools: OCI layouts, files of `docker save`, and
// registries. It owns the choice of the platform, the verification of every blob, the cache of downloaded layers,
// and the merge of layers into one tree. It builds no kernel and starts no VM. All input is hostile: limits bound
// memory, time and disk, and a layer cannot write outside of its root, because its tree exists only in memory.
package ociimage
