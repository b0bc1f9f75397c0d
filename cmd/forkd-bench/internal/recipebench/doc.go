// Package recipebench is the benchmark of recipes: the time from a fork to its first useful answer, beside the same
// answer from a fresh process. It owns the work of each recipe, and ends all that it made. The trap: the cold
// process runs in a guest whose page cache already has its files, so it is faster than on a machine just booted.
package recipebench
