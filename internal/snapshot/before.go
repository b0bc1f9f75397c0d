package snapshot

// before is called before each step that a crash or an error could separate from
// the next. Tests put a hook in; nothing else may. (Package failpoint stops whole
// processes after the steps that a snapshot's maker sees.)
var before = func(step string) error { return nil }
