package servicewire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto"
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

// List is the answer with all services.
type List struct {
	Services []Status `json:"services"` // by name
}

// Plain routes of the agent. A service's name follows Path and a slash; its log follows LogSuffix.
const (
	Path      = "/services"
	LogSuffix = "/log"
	// Header is in each answer about services. An agent without it has no services.
	Header = "Forkd-Services"
	// HeaderValue is its value. Agents without liveness send another one.
	HeaderValue = "2"
	// StopHeader is in each answer of an agent that ends services by other signals than SIGTERM, too.
	StopHeader = "Forkd-Services-Stop-Signal"
)

// Action is a request about a declared service.
type Action struct {
	Do string `json:"do"` // stop, start or restart
}

// maxError limits the text of an error in an answer.
const maxError = 1024

// ParseList reads a guest's answer. A violation of a limit is an error.
func ParseList(b []byte) (List, error) {
	var l List
	if len(b) > MaxListBytes {
		return List{}, agentproto.Violationf("a list of services has more than %d bytes", MaxListBytes)
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return List{}, agentproto.Violationf("a list of services is no JSON of its form")
	}
	return l, l.Check()
}

// Check returns a Violation for an answer that no agent sends.
func (l List) Check() error {
	if len(l.Services) > MaxServices {
		return agentproto.Violationf("%d services, more than %d", len(l.Services), MaxServices)
	}
	last := ""
	for _, s := range l.Services {
		if err := s.check(); err != nil {
			return agentproto.Violationf("a service in a list: %v", err)
		}
		if s.Spec.Name <= last {
			return agentproto.Violationf("a list of services is not in the order of names")
		}
		last = s.Spec.Name
	}
	return nil
}

func (s Status) check() error {
	switch {
	case s.Spec.Check() != nil:
		return fmt.Errorf("its declaration is invalid")
	case !slices.Contains([]State{Starting, IsReady, BackingOff, Failed, Stopped}, s.State):
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
