// Package healthcheck reads the health check of a container image with Docker's rules and defaults. It owns the limits of
// times and retries, and the forms of the command. It runs no check: callers turn a Check into the check of a service.
// All input is text of an image, so it is hostile.
package healthcheck

import (
	"fmt"
	"time"
)

// Docker's defaults.
const (
	DefaultInterval = 30 * time.Second
	DefaultTimeout  = 30 * time.Second
	DefaultRetries  = 3
)

const (
	least = time.Millisecond
	most  = 24 * time.Hour
)

// maxRetries limits the failures in a row.
const maxRetries = 1000

// Declared is a health check as an image declares it. A time or number of 0 is the default.
type Declared struct {
	Test        []string      // NONE, CMD and arguments, or CMD-SHELL and a line
	Interval    time.Duration // between two checks
	Timeout     time.Duration // of one check
	StartPeriod time.Duration // after the start, in which failures do not count
	Retries     int           // failures in a row
}

// Check is a health check without defaults left to fill in.
type Check struct {
	Command     []string      // program and its arguments
	Interval    time.Duration // between two checks
	Timeout     time.Duration // of one check
	StartPeriod time.Duration // after the start, in which failures do not count
	Retries     int           // failures in a row after which the program is unhealthy
}

// Patience returns the time from the start until Docker calls a program unhealthy if its checks always fail.
func (c Check) Patience() time.Duration { return c.StartPeriod + time.Duration(c.Retries)*c.Interval }

// Resolve checks a declaration and fills in Docker's defaults. The shell runs the line of CMD-SHELL. The result is nil
// if the image has no check.
func Resolve(d Declared, shell []string) (*Check, error) {
	if len(d.Test) == 0 || d.Test[0] == "NONE" {
		return nil, nil
	}
	c := Check{Interval: d.Interval, Timeout: d.Timeout, StartPeriod: d.StartPeriod, Retries: d.Retries}
	switch kind, args := d.Test[0], d.Test[1:]; {
	case kind == "CMD-SHELL" && len(args) == 1 && args[0] != "":
		c.Command = append(append(c.Command, shell...), args[0])
	case kind == "CMD" && len(args) > 0 && args[0] != "":
		c.Command = args
	default:
		return nil, fmt.Errorf("health check %.64q: want CMD with a program, CMD-SHELL with one line, or NONE", d.Test)
	}
	for _, t := range []struct {
		name string
		at   *time.Duration
		zero time.Duration
	}{
		{"interval", &c.Interval, DefaultInterval}, {"timeout", &c.Timeout, DefaultTimeout},
		{"start period", &c.StartPeriod, 0},
	} {
		switch {
		case *t.at == 0:
			*t.at = t.zero
		case *t.at < least || *t.at > most:
			return nil, fmt.Errorf("health check: %s of %s: want 1ms to 24h", t.name, *t.at)
		}
	}
	switch {
	case c.Retries == 0:
		c.Retries = DefaultRetries
	case c.Retries < 0 || c.Retries > maxRetries:
		return nil, fmt.Errorf("health check: %d retries: want 1 to %d", c.Retries, maxRetries)
	}
	return &c, nil
}
