package snapshot

// failpoint is called before each step that a crash or an error could separate
// from the next. Tests put a hook in; nothing else may.
var failpoint = func(step string) error { return nil }
