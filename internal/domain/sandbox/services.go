package sandbox

import (
	"strconv"

	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// Service is the state of a service in lists. The guest reports it.
type Service struct {
	Name     string // unique in the sandbox
	State    string // a servicespec.State
	Restarts int64  // since it was declared
	ExitCode *int   // of its last run; nil before the first end
	Error    string // cause of its last failed run, safe to display and short
}

// maxServiceError limits the error of a service in lists and events, in bytes.
const maxServiceError = 200

// ServicesOf returns the short form of a checked list.
func ServicesOf(list []servicespec.Status) []Service {
	var out []Service
	for _, s := range list {
		out = append(out, Service{Name: s.Spec.Name, State: string(s.State), Restarts: s.Restarts, ExitCode: s.ExitCode,
			Error: guesttext.Clip(s.Error, maxServiceError)})
	}
	return out
}

// ServiceEvents returns the kinds and details of the events between two states of a sandbox's services. Without
// a state before, as in a clone, restarts are its source's and no events.
func ServiceEvents(i Info, before, now []Service) (kinds []string, details []map[string]string) {
	old := map[string]Service{}
	for _, s := range before {
		old[s.Name] = s
	}
	for _, s := range now {
		was := old[s.Name]
		add := func(kind string) {
			d := i.About()
			d["service"], d["restarts"] = s.Name, strconv.FormatInt(s.Restarts, 10)
			if s.ExitCode != nil && kind == EventServiceCrashed {
				d["exit_code"] = strconv.Itoa(*s.ExitCode)
			}
			if s.Error != "" && kind == EventServiceCrashed {
				d["error"] = s.Error
			}
			kinds, details = append(kinds, kind), append(details, d)
		}
		if len(before) == 0 {
			was.Restarts = s.Restarts
		}
		if crashes(s) > crashes(was) {
			add(EventServiceCrashed)
		}
		if s.State == string(servicespec.IsReady) && (was.State != s.State || was.Restarts != s.Restarts) {
			add(EventServiceReady)
		}
	}
	return kinds, details
}

// crashes returns the number of ends of a service without a request.
func crashes(s Service) int64 {
	if s.State == string(servicespec.BackingOff) || s.State == string(servicespec.Failed) {
		return s.Restarts + 1
	}
	return s.Restarts
}
