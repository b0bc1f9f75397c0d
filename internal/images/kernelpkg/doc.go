// Package kernelpkg reads Debian's kernel packages without installing them: the
// kernel, its configuration, and its modules with what they depend on; and fetches
// them through the host's apt. It owns packages, modinfo and the choice of a
// version; it does not boot, and does not write archives. Images and the appliance
// call it. The trap: a module's name has underscores where its file may have dashes
// (virtio-rng.ko is virtio_rng); all lookups go by the name.
package kernelpkg
