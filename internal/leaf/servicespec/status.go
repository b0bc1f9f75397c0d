package servicespec

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is the state of a service.
type State string

// The states.
const (
	Starting   State = "starting"    // its program runs, and its check has not succeeded yet
	IsReady    State = "ready"       // its program runs, and its check has succeeded
	BackingOff State = "backing-off" // it ended and waits for its restart
	Failed     State = "failed"      // it ended, and its policy does not restart it
	Stopped    State = "stopped"     // it was stopped, or it ended with 0 and is not restarted
)

// Known reports whether the state is one of them.
func (s State) Known() bool {
	return slices.Contains([]State{Starting, IsReady, BackingOff, Failed, Stopped}, s)
}

// Status describes a service.
type Status struct {
	Spec     Spec   `json:"spec"`                // as declared
	State    State  `json:"state"`               // current state
	PID      int    `json:"pid,omitempty"`       // in the guest; 0 if no program runs
	ExitCode *int   `json:"exit_code,omitempty"` // of the last run, 128+n after signal n; nil before the first end
	Restarts int64  `json:"restarts"`            // since it was declared
	SinceNS  int64  `json:"since_ns"`            // begin of the state, by the guest's clock
	Error    string `json:"error,omitempty"`     // cause of the last failed run
	LogBytes int64  `json:"log_bytes"`           // output since it was declared
	LogLost  int64  `json:"log_lost"`            // bytes of it that the log no longer has
}

// maxError limits the text of an error in an answer.
const maxError = 1024

// Check returns an error for a status that no agent sends.
func (s Status) Check() error {
	switch {
	case s.Spec.Check() != nil:
		return fmt.Errorf("its declaration is invalid")
	case !s.State.Known():
		return fmt.Errorf("its state is unknown")
	case s.PID < 0 || s.PID > 1<<22:
		return fmt.Errorf("its process is %d", s.PID)
	case s.ExitCode != nil && (*s.ExitCode < -1 || *s.ExitCode > 255):
		return fmt.Errorf("its exit code is %d", *s.ExitCode)
	case s.Restarts < 0 || s.LogBytes < 0 || s.LogLost < 0 || s.LogLost > s.LogBytes:
		return fmt.Errorf("its counters are impossible")
	case s.Restarts > 1<<53 || s.LogBytes > 1<<53:
		return fmt.Errorf("its counters are too large")
	case s.SinceNS < 0 || time.Unix(0, s.SinceNS).Year() > 2200:
		return fmt.Errorf("its time is impossible")
	case len(s.Error) > maxError:
		return fmt.Errorf("its error has more than %d bytes", maxError)
	}
	return nil
}

// ClipError returns the text of an error for a Status.
func ClipError(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) > maxError/2 {
		text = strings.ToValidUTF8(text[:maxError/2], "")
	}
	return text
}

// Settled reports whether waiting for a service is over: it is ready, or will not be on its own.
func (s Status) Settled() bool { return s.State == IsReady || s.State == Failed || s.State == Stopped }
