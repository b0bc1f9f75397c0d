package store

import steps "github.com/forkd/forkd/internal/failpoint"

// failpoint is called before each step that a crash or an error could separate
// from the next. Tests put a hook in, to make a step fail; nothing else may. Tests of
// whole processes stop them here by package failpoint.
var failpoint = func(step string) error {
	steps.Here(steps.Step(steps.LayerPrefix + step))
	return nil
}

// SetFailpoint puts a hook before every step of all stores of this process, for
// tests of what is built on them: it may end the process, or the step by its error.
func SetFailpoint(hook func(step string) error) { failpoint = hook }
