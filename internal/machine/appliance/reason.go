package appliance

// reasonedError is an error with a reason, for which the CLI has advice.
type reasonedError struct {
	error
	reason  string
	details map[string]string // names used in the advice
}

func (e reasonedError) Unwrap() error { return e.error }

// ReasonName returns the reason. It is stable and begins with "machine_".
func (e reasonedError) ReasonName() string { return e.reason }

// Details returns the details by name.
func (e reasonedError) Details() map[string]string { return e.details }
