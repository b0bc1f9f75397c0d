// Package figure draws the benchmarks' figures as SVG: a few panels beside each other, of bars or
// of points with lines, with axes from zero, units, a title and notes. gonum.org/v1/plot draws.
// This package owns the layout of the panels and their colours; its callers own the contents. The
// trap: the library refuses NaN, which means "no value" here.
package figure
