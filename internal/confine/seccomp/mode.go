package seccomp

import "fmt"

// Mode is the action on a denied system call.
type Mode string

// Values of Mode.
const (
	On  Mode = "on"  // the process is killed
	Log Mode = "log" // the call proceeds; the kernel logs it if it has audit
	// Trap ends the process with a Go traceback of the call, to find calls missing from a list.
	Trap Mode = "trap"
	Off  Mode = "off" // no filter
)

// ParseMode parses a mode.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case On, Log, Trap, Off:
		return m, nil
	}
	return "", fmt.Errorf("%q: want on, log, trap or off", s)
}

// Confinement is the result of installing a process's filters.
type Confinement struct {
	Confined bool   `json:"confined"`          // filters are active and kill
	Why      string `json:"why_not,omitempty"` // why it is not confined
}
