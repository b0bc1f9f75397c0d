package audit

import (
	"strings"
	"time"
)

// Filter selects entries. Zero fields match every entry.
type Filter struct {
	Since   time.Time
	Sandbox string
	Tenant  string
	Action  string // an action, or a prefix ending in a dot: "sandbox."
	Result  Result
	Request string
	// Changes excludes actions that only read.
	Changes bool
}

// Match reports whether the filter selects an entry.
func (f Filter) Match(e Entry) bool {
	switch {
	case !f.Since.IsZero() && e.Time.Before(f.Since),
		f.Sandbox != "" && e.Sandbox != f.Sandbox,
		f.Tenant != "" && e.Tenant != f.Tenant,
		f.Result != "" && e.Result != f.Result,
		f.Request != "" && e.Request != f.Request,
		f.Changes && e.Read:
		return false
	}
	return f.Action == "" || e.Action == f.Action ||
		strings.HasSuffix(f.Action, ".") && strings.HasPrefix(e.Action, f.Action)
}
