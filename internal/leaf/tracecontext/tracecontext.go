// Package tracecontext reads the headers traceparent and tracestate of W3C Trace Context, and passes them on to
// programs as environment variables. It records no spans. The trap: the headers come from clients, so an invalid
// traceparent counts as absent, and an invalid tracestate never invalidates the traceparent.
package tracecontext

import (
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
)

// Environment variables of programs that take part in a trace.
const (
	EnvParent = "TRACEPARENT"
	EnvState  = "TRACESTATE"
)

const (
	parentLength = 55  // version 00: 2-32-16-2 hex digits
	maxMembers   = 32  // Trace Context §3.3.1.1
	maxState     = 512 // bytes every participant must pass on, §3.3.1.5
	maxKey       = 256
	maxValue     = 256
	knownFlags   = 0x03 // sampled, random trace ID
)

// Context is a request's place in a trace. Its zero value is no trace.
type Context struct {
	traceID, parentID string
	flags             byte
	state             string
}

// FromHeader returns the trace context of a request, from headers with canonical names. It is zero without a valid
// traceparent.
func FromHeader(h map[string][]string) Context {
	parents := h["Traceparent"]
	if len(parents) != 1 {
		return Context{}
	}
	c, ok := parse(parents[0])
	if !ok {
		return Context{}
	}
	if states := h["Tracestate"]; len(states) > 0 && len(states) <= maxMembers {
		c.state = parseState(strings.Join(states, ","))
	}
	return c
}

// TraceID returns the trace's ID, 32 hex digits. It is empty without a trace.
func (c Context) TraceID() string { return c.traceID }

// Below returns the context with a span of this program as the parent. The IDs are those of the span.
func (c Context) Below(trace [16]byte, span [8]byte, flags byte) Context {
	c.traceID, c.parentID = hex.EncodeToString(trace[:]), hex.EncodeToString(span[:])
	c.flags = flags & knownFlags
	return c
}

// Environ returns the variables for programs: nil without a trace.
func (c Context) Environ() map[string]string {
	if c.traceID == "" {
		return nil
	}
	env := map[string]string{EnvParent: fmt.Sprintf("00-%s-%s-%02x", c.traceID, c.parentID, c.flags)}
	if c.state != "" {
		env[EnvState] = c.state
	}
	return env
}

// AddTo returns a program's environment with the variables of the trace, unless env has one of them.
func (c Context) AddTo(env map[string]string) map[string]string {
	added := c.Environ()
	_, parent := env[EnvParent]
	_, state := env[EnvState]
	if added == nil || parent || state {
		return env
	}
	maps.Copy(added, env)
	return added
}

// SetHeader sets the headers of a request to another server. Without a trace it changes none.
func (c Context) SetHeader(h map[string][]string) {
	env := c.Environ()
	if env == nil {
		return
	}
	h["Traceparent"] = []string{env[EnvParent]}
	delete(h, "Tracestate")
	if state := env[EnvState]; state != "" {
		h["Tracestate"] = []string{state}
	}
}

// parse reads a traceparent. Later versions may append fields, §3.2.2.
func parse(s string) (Context, bool) {
	if len(s) < parentLength || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return Context{}, false
	}
	version, trace, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	for _, field := range []string{version, trace, parent, flags} {
		if !consistsOf(field, "0123456789abcdef") {
			return Context{}, false
		}
	}
	switch {
	case version == "ff", version == "00" && len(s) != parentLength, len(s) > parentLength && s[parentLength] != '-':
		return Context{}, false
	case strings.Trim(trace, "0") == "", strings.Trim(parent, "0") == "":
		return Context{}, false
	}
	return Context{traceID: trace, parentID: parent, flags: (digit(flags[0])<<4 | digit(flags[1])) & knownFlags}, true
}

func digit(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

// parseState returns a valid tracestate without empty members, or "".
func parseState(s string) string {
	if len(s) > maxState {
		return ""
	}
	var members []string
	seen := map[string]bool{}
	for member := range strings.SplitSeq(s, ",") {
		if member = strings.Trim(member, " \t"); member == "" {
			continue
		}
		key, value, ok := strings.Cut(member, "=")
		if !ok || seen[key] || !validKey(key) || !validValue(value) || len(members) == maxMembers {
			return ""
		}
		seen[key] = true
		members = append(members, member)
	}
	return strings.Join(members, ",")
}

func validKey(s string) bool {
	if s == "" || len(s) > maxKey || strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789", s[0]) < 0 {
		return false
	}
	return consistsOf(s, "abcdefghijklmnopqrstuvwxyz0123456789_-*/@")
}

func consistsOf(s, letters string) bool { return strings.Trim(s, letters) == "" }

func validValue(s string) bool {
	if s == "" || len(s) > maxValue {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '=' || r == ',' })
}
