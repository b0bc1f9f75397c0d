package agentproto

import "fmt"

// Violation is the error of an answer that the protocol forbids. It ends the call that
// got the answer and no other. The agent that gave it is hostile or broken, so the call
// is not repeated.
type Violation struct{ What string }

// Violationf makes a Violation.
func Violationf(format string, args ...any) error { return &Violation{fmt.Sprintf(format, args...)} }

func (v *Violation) Error() string { return "the guest's agent broke its protocol: " + v.What }
