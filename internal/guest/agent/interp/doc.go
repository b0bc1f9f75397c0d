// Package interp keeps one warmed interpreter process per language: starts it,
// evaluates code in it, interrupts or replaces it, reseeds it after a fork. It
// owns the processes and the pipes to their drivers; a language is one file
// (python.go and its driver). The trap: the code that runs in an interpreter
// can write anything to the driver's pipe, so answers are as hostile as the
// code is.
package interp
