package sandboxes

// state is where a listed sandbox is in its life. It is gone when it is in no list.
type state uint8

const (
	running state = iota // it has a VM
	failed               // its VM ended by itself; it stays listed, with its console, until it is killed or expires
	paused               // it is a snapshot and a record in the store, and has no VM
	ending               // it is being killed: no other operation finds it any more
)

// event is what happens to a sandbox.
type event uint8

const (
	vmEnded  event = iota // its VM ended by itself
	exchange              // a rollback gives it another VM
	pause                 // its snapshot is whole and recorded: its VM goes
	resume                // it has a VM again
	kill
)

// moves has every move that there is; any other is refused.
var moves = map[state]map[event]state{
	running: {vmEnded: failed, exchange: running, pause: paused, kill: ending},
	failed:  {kill: ending},
	paused:  {resume: running, kill: ending},
	ending:  {},
}

// moveLocked moves a sandbox, and reports false if it cannot. Table.mu is held.
func (s *Sandbox) moveLocked(ev event) bool {
	to, ok := moves[s.state][ev]
	if ok {
		s.state = to
	}
	return ok
}
