// Package keep compares sandboxes by a score and ends all but the best. It runs the caller's command
// in each sandbox, or reads a file, and ranks the numbers. The engine, as visible to the caller, does
// the rest, so a tenant compares only its own sandboxes. Beware: no sandbox may be ended before all
// scores are known, and none because its score is missing, unless the caller asks for that.
package keep
