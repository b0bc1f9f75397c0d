// Package undo takes back a multi-step set-up that failed half way: each step
// pushes how to undo itself, and on failure the undos run newest first. It is
// for construction only; the trap is to forget to name the error result that
// OnError looks at.
package undo

// Stack holds the undos of one construction. The zero value is ready to use.
// It is not safe for concurrent use.
type Stack struct{ steps []func() }

// Push adds how to undo the step that just succeeded.
func (s *Stack) Push(step func()) { s.steps = append(s.steps, step) }

// OnError runs the undos if *err is not nil, else drops them. Call it deferred.
func (s *Stack) OnError(err *error) {
	if *err != nil {
		s.Run()
	}
	s.steps = nil
}

// Run takes everything back, newest first, and empties the stack.
func (s *Stack) Run() {
	for i := len(s.steps) - 1; i >= 0; i-- {
		s.steps[i]()
	}
	s.steps = nil
}
