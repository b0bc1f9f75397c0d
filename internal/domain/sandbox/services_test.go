package sandbox

import (
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// The cause of a restart is in the event, limited and safe to display.
func TestAnEventHasTheCause(t *testing.T) {
	said := strings.Repeat("\x1b[31mred", 100)
	now := ServicesOf([]servicespec.Status{{Spec: servicespec.Spec{Name: "web"},
		State: servicespec.BackingOff, Error: said}})
	kinds, details := ServiceEvents(Info{}, []Service{{Name: "web", State: "ready"}}, now)
	if len(kinds) != 1 || kinds[0] != EventServiceCrashed {
		t.Fatal(kinds)
	}
	text := details[0]["error"]
	if !strings.Contains(text, "[31mred") || strings.Contains(text, "\x1b") || len(text) > maxServiceError+4 {
		t.Errorf("got %q", text)
	}
}

func TestEventsOfServices(t *testing.T) {
	at := func(state string, restarts int64) []Service {
		return []Service{{Name: "web", State: state, Restarts: restarts}}
	}
	other := []Service{{Name: "other", State: "ready"}}
	for name, c := range map[string]struct {
		before, now []Service
		want        []string
	}{
		"first":                       {nil, at("starting", 0), nil},
		"ready at first":              {nil, at("ready", 0), []string{EventServiceReady}},
		"a clone's restarts":          {nil, at("ready", 7), []string{EventServiceReady}},
		"a clone that waits":          {nil, at("backing-off", 7), []string{EventServiceCrashed}},
		"one more":                    {other, append(at("failed", 0), other...), []string{EventServiceCrashed}},
		"ready":                       {at("starting", 0), at("ready", 0), []string{EventServiceReady}},
		"no change":                   {at("ready", 1), at("ready", 1), nil},
		"crashed":                     {at("ready", 1), at("backing-off", 1), []string{EventServiceCrashed}},
		"back":                        {at("backing-off", 1), at("starting", 2), nil},
		"crashed and back, unseen":    {at("ready", 1), at("ready", 2), []string{EventServiceCrashed, EventServiceReady}},
		"gave up":                     {at("backing-off", 2), at("failed", 3), []string{EventServiceCrashed}},
		"stopped":                     {at("ready", 1), at("stopped", 1), nil},
		"removed":                     {at("ready", 1), nil, nil},
		"an older state, rolled back": {at("ready", 5), at("ready", 1), []string{EventServiceReady}},
	} {
		if got, details := ServiceEvents(Info{}, c.before, c.now); !slices.Equal(got, c.want) || len(details) != len(got) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
