package sandboxes

import "testing"

// The table once more: any other transition must be refused without effect.
func TestStates(t *testing.T) {
	for _, c := range []struct {
		from state
		ev   event
		to   state
		ok   bool
	}{
		{running, vmEnded, failed, true}, {running, exchange, running, true}, {running, kill, ending, true},
		{failed, vmEnded, failed, false}, {failed, exchange, failed, false}, {failed, kill, ending, true},
		{ending, vmEnded, ending, false}, {ending, exchange, ending, false}, {ending, kill, ending, false},
		{running, pause, paused, true}, {running, resume, running, false},
		{failed, pause, failed, false}, {failed, resume, failed, false},
		{ending, pause, ending, false}, {ending, resume, ending, false},
		{paused, vmEnded, paused, false}, {paused, exchange, paused, false}, {paused, pause, paused, false},
		{paused, resume, running, true}, {paused, kill, ending, true},
	} {
		s := &Sandbox{state: c.from}
		if ok := s.moveLocked(c.ev); ok != c.ok || s.state != c.to {
			t.Errorf("event %d in state %d: %v, state %d; want %v, %d", c.ev, c.from, ok, s.state, c.ok, c.to)
		}
	}
}
