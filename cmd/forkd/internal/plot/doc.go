// Package plot draws the benchmarks' figures as SVG: a few panels beside each
// other, of bars or of points with lines, with axes from zero, units, a title and
// notes. It owns the look, which is made for light and for dark pages alike; what is
// drawn is its callers'. The trap: text is escaped here and nowhere else.
package plot
