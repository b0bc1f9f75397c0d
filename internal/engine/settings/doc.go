// Package settings holds the configuration of an engine: directories, limits, timeouts, and
// functions to access the host. It checks them and sets defaults; it opens and starts nothing.
// Package engine exports the type under its own name. Zero selects the default of a field, so a
// limit with a default cannot be set to 0.
package settings
