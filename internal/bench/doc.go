// Package bench measures forks against what the machine can do at best, in one
// run: the floor is the same number of VMs made by bare ioctls. It drives the
// domain as any client would and owns the figures' definitions
// (docs/benchmarks.md). The trap: figures of different runs must not be
// compared; each run therefore measures its own floor.
package bench
