// Package chainbench is the benchmark of chains of snapshots: whether a fork
// from one that lies deep costs what a fork from the first costs, how many bytes
// a layer takes, and what children of a deep one share. It owns the order of the
// measurement and the figures; it prints nothing. The trap: figures of depths are
// compared within a run only, where forks of each alternate with forks of the first.
package chainbench
