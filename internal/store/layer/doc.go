// Package layer defines the format of a layer, the unit of storage for guest memory and disks
// (docs/inside/formats/layer.md). It implements the operations on a chain of layers: flattening it into the few
// file ranges that a VM maps, reading through it, rewriting it as one layer, and digests. It owns no directory
// and no names; package layer/store does, and calls it. A layer is written once, in ascending order, and is
// immutable afterwards. Beware: a diff hides the layers below only where it has a run, so a block that became
// zero needs a zero run.
package layer
