package appliance

// reasonedError is an error whose reason the CLI has advice for.
type reasonedError struct {
	error
	reason  string
	details map[string]string // what the advice names
}

func (e reasonedError) Unwrap() error { return e.error }

// ReasonName is stable; it is "machine_" and what is wrong.
func (e reasonedError) ReasonName() string { return e.reason }

// Details are by name.
func (e reasonedError) Details() map[string]string { return e.details }
