// Package chainbench is the benchmark of chains of snapshots. It measures the cost of a fork from a
// deep snapshot beside a fork from the first, the bytes of a layer, and the shared memory of
// children of a deep snapshot. It owns the order of the measurement and the figures; it prints no
// output. The trap: compare figures of depths only within a run. There, forks of each depth
// alternate with forks of the first.
package chainbench
