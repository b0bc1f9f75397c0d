package store

// failpoint is called before each step that a crash or an error could separate
// from the next. Tests put a hook in; nothing else may.
var failpoint = func(step string) error { return nil }

// SetFailpoint puts a hook before every step of all stores of this process, for
// tests of what is built on them: it may end the process, or the step by its error.
func SetFailpoint(hook func(step string) error) { failpoint = hook }
