// Package measure is what the benchmarks have in common: quantiles, children
// that are forked and ended, shells that stand ready, and where a figure was
// made. It owns no figure; the packages of the benchmarks do. The trap: whatever
// it makes lives in a daemon, so its callers end it even if they are interrupted.
package measure
