// Package interp keeps one warmed interpreter process per language. It starts the process,
// evaluates code in it, interrupts or replaces it, and reseeds it after a fork. It owns the
// processes and the pipes to their drivers. A language is one file (python.go and its driver). Code
// in an interpreter can write any bytes to the driver's pipe, so answers are as hostile as the
// code.
package interp
