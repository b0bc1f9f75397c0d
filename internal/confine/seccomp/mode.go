package seccomp

import "fmt"

// Mode is what happens at a call that a filter does not leave.
type Mode string

// Modes.
const (
	On  Mode = "on"  // the process is killed
	Log Mode = "log" // the kernel logs it, if it has an audit, and the call is done
	// Trap ends the process with a Go traceback that says where: for finding what a list lacks.
	Trap Mode = "trap"
	Off  Mode = "off" // there is no filter
)

// ParseMode reads a mode.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case On, Log, Trap, Off:
		return m, nil
	}
	return "", fmt.Errorf("%q: want on, log, trap or off", s)
}

// Confinement is what became of a process's filters.
type Confinement struct {
	Confined bool   `json:"confined"`          // they are in force, and kill
	Why      string `json:"why_not,omitempty"` // it is not
}
