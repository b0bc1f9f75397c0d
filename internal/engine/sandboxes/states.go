package sandboxes

// state is the state of a listed sandbox. A removed sandbox is in no list.
type state uint8

const (
	running state = iota // it has a VM
	failed               // its VM ended by itself; it stays listed, with its console, until it is killed or expires
	paused               // it is a snapshot and a record in the store, and has no VM
	ending               // it is being killed: other operations no longer find it
)

// event is an event in the life of a sandbox.
type event uint8

const (
	vmEnded  event = iota // its VM ended by itself
	exchange              // a rollback gives it another VM
	pause                 // its snapshot is complete and recorded: its VM ends
	resume                // it has a VM again
	give                  // another daemon has taken it
	kill
)

// moves lists the legal transitions.
var moves = map[state]map[event]state{
	running: {vmEnded: failed, exchange: running, pause: paused, kill: ending},
	failed:  {kill: ending},
	paused:  {resume: running, give: ending, kill: ending},
	ending:  {},
}

// moveLocked moves a sandbox to the next state. It returns false if the transition is illegal. The
// caller holds Table.mu.
func (s *Sandbox) moveLocked(ev event) bool {
	to, ok := moves[s.state][ev]
	if ok {
		s.state = to
	}
	return ok
}
