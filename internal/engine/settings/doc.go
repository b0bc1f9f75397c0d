// Package settings is what an engine is told when it is opened: directories, limits, time-outs,
// and the functions that reach the host. It checks them and knows their defaults; it opens and
// starts nothing. Package engine offers the type under its own name. The trap: zero stands for
// the default of a field that has one, so that no such limit can be set to nothing.
package settings
