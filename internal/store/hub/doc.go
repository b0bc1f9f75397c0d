// Package hub is the format in which snapshots travel: an OCI artifact of frames and tables
// (docs/inside/formats/hub.md). It packs a snapshot of the store into blobs, and makes a snapshot of
// blobs. It does not use the network: package images/ociimage speaks to registries.
//
// Everything read by this package was written elsewhere. At worst it is refused.
package hub
