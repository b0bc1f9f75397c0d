package audit

import (
	"strings"
	"time"
)

// Filter says which entries are wanted; what is zero leaves nothing out.
type Filter struct {
	Since   time.Time
	Sandbox string
	Tenant  string
	Action  string // or the beginning of some, with a dot at its end: "sandbox."
	Result  Result
	Request string
	// Changes leaves out actions that only read.
	Changes bool
}

// Match reports whether an entry is wanted.
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
