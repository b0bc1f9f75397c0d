package hostcap

// Level of a Check's result.
type Level string

const (
	OK   Level = "ok"
	Note Level = "note" // works, but not as well as it could
	Fail Level = "fail" // something does not work because of this
)

// Check is one line of `forkd doctor`. Its JSON form is part of the CLI's contract.
type Check struct {
	Name   string `json:"name"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	// Do says what to do about it; empty when nothing is to be done.
	Do string `json:"do,omitempty"`
}

// Where VMs are run.
type Where string

const (
	Host    Where = "host"
	Machine Where = "machine"
)

// Decision is the choice between host and machine, with its reason in one line.
type Decision struct {
	Where  Where  `json:"where"`
	Reason string `json:"reason"`
}
