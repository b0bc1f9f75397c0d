// Package store keeps layers in a directory. It names them, and counts their users: durable pins, and open
// handles in any process. It removes unused layers (docs/inside/formats/layer.md). It does not know which layers
// form a chain: its callers' manifests do, and name layers by ID only, so that a store can be moved or copied.
// Package snapshot calls it. Beware: only its open handle keeps a newly committed layer. Close the handle after
// Pin, not before.
package store
