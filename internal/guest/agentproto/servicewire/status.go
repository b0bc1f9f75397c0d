// Package servicewire has the messages about services: programs that the agent supervises in its
// guest. Requests are JSON over the agent's HTTP port, and both ends check them. Answers of a guest
// are checked by the host with List.Check before any other use. Package servicespec has the declarations.
package servicewire

import (
	"encoding/json"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// List is the answer with all services.
type List struct {
	Services []servicespec.Status `json:"services"` // by name
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

// Limits of messages.
const (
	MaxListBytes = 1 << 20 // of the answer with all services
	MaxSpecBytes = 1 << 20 // of a request to declare services
)

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
	if len(l.Services) > servicespec.MaxServices {
		return agentproto.Violationf("%d services, more than %d", len(l.Services), servicespec.MaxServices)
	}
	last := ""
	for _, s := range l.Services {
		if err := s.Check(); err != nil {
			return agentproto.Violationf("a service in a list: %v", err)
		}
		if s.Spec.Name <= last {
			return agentproto.Violationf("a list of services is not in the order of names")
		}
		last = s.Spec.Name
	}
	return nil
}
