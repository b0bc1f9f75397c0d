// Package kernelpkg reads Debian's kernel packages without installing them: the kernel, its configuration, and
// its modules with their dependencies. It also downloads packages through the host's apt. It owns the reading of
// packages and modinfo, and the choice of a version. It does not boot kernels or write archives. Images and the
// appliance use it. Beware: a module's name has underscores where its file name may have dashes (virtio-rng.ko is
// virtio_rng); all lookups use the name.
package kernelpkg
