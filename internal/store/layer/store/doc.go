// Package store keeps layers in a directory: it gives them their names, counts
// who needs them, by durable pins and by open use in any process, and removes
// what nobody needs (docs/inside/formats/layer.md). It knows no chain's meaning: which
// layers make up what is in its callers' manifests, which name layers by ID only,
// so that a store can be moved or copied. Package snapshot calls it. The trap: a
// layer that was just committed is kept by its open handle alone; close that after
// the Pin, not before.
package store
