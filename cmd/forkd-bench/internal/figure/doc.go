// Package figure draws the benchmarks' figures as SVG: a few panels beside each
// other, of bars or of points with lines, with axes from zero, units, a title and
// notes. gonum.org/v1/plot draws; this package owns how the panels are laid out and
// their colours, and its callers what is drawn.
// The trap: the library refuses NaN, which stands for no value here.
package figure
