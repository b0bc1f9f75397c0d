// Package layer is the format of a layer, the unit that guest memory and disks
// are stored in, and what is done with a chain of them: flattening it into the
// few file ranges that a VM maps, reading through it, writing it anew as one
// layer, and digests (docs/inside/formats/layer.md). It owns no directory and no name;
// package layer/store does, and calls it. A layer is written once, in rising
// order, and never again. The trap: a diff hides what lies below it only where
// it has a run, so a block that became zero needs a zero run, not silence.
package layer
