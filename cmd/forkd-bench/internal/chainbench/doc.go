// Package chainbench is the benchmark of chains of snapshots. It measures whether a fork from a
// deep snapshot costs as much as a fork from the first, the bytes of a layer, and the memory that
// children of a deep snapshot share. It owns the order of the measurement and the figures; it
// prints no output. The trap: compare figures of depths only within a run. There, forks of each
// depth alternate with forks of the first.
package chainbench
