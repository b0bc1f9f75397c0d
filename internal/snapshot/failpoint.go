package snapshot

import steps "github.com/forkd/forkd/internal/failpoint"

// failpoint is called before each step that a crash or an error could separate
// from the next. The package's own tests put a hook in, to make a step fail;
// nothing else may. Other tests stop a process here by package failpoint.
var failpoint = func(step string) error {
	steps.Here(steps.Step(steps.SnapshotPrefix + step))
	return nil
}
