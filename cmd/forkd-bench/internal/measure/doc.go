// Package measure holds the benchmarks' shared code: quantiles, forking and ending children,
// waiting for shells, and the place of a measurement. The packages of the benchmarks own the
// figures. The trap: the children live in a daemon, so callers must end them even when interrupted.
package measure
