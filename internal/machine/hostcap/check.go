package hostcap

// Level is the severity of a Check's result.
type Level string

const (
	OK   Level = "ok"
	Note Level = "note" // works, but not optimally
	Fail Level = "fail" // a feature does not work because of this
)

// Check is one line of `forkd doctor`. Its JSON form is part of the CLI's contract.
type Check struct {
	Name   string `json:"name"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	// Do is advice; empty if there is nothing to do.
	Do string `json:"do,omitempty"`
}

// Where is the place where VMs run.
type Where string

const (
	Host    Where = "host"
	Machine Where = "machine"
)

// Decision is the choice between host and machine, with a reason of one line.
type Decision struct {
	Where  Where  `json:"where"`
	Reason string `json:"reason"`
}
