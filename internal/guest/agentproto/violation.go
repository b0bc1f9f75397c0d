package agentproto

import "fmt"

// Violation is the error for an answer forbidden by the protocol. It ends only the call that
// received the answer. The agent is hostile or broken, so the call is not repeated.
type Violation struct {
	What string // the text after the colon of the error
}

// Violationf returns a Violation with a formatted text.
func Violationf(format string, args ...any) error { return &Violation{fmt.Sprintf(format, args...)} }

func (v *Violation) Error() string { return "the guest's agent broke its protocol: " + v.What }
