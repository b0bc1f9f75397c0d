// Package arch holds the walls of the house as tests: which package may depend
// on which and why, where unsafe code may stand, and that every package says
// what it is. It has no code of its own. The trap: a rule that is in the way is
// moved here, with its reason, and in docs/architecture.md; it is not worked
// around.
package arch
