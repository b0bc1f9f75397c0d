// Package undo rolls back a multi-step set-up that failed: each step pushes its undo function, and on failure the
// functions run newest first. It is for construction only. Beware: the error result checked by OnError must be
// named.
package undo

// Stack holds the undo functions of one construction. The zero value is ready to use. It is not safe for
// concurrent use.
type Stack struct{ steps []func() }

// Push adds the undo function of the step just completed.
func (s *Stack) Push(step func()) { s.steps = append(s.steps, step) }

// OnError runs the undo functions if *err is not nil, and drops them otherwise. Call it deferred.
func (s *Stack) OnError(err *error) {
	if *err != nil {
		s.Run()
	}
	s.steps = nil
}

// Run runs the undo functions, newest first, and empties the stack.
func (s *Stack) Run() {
	for i := len(s.steps) - 1; i >= 0; i-- {
		s.steps[i]()
	}
	s.steps = nil
}
