package imagebuild

import (
	"errors"
	"fmt"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/leaf/healthcheck"
	"github.com/forkd/forkd/internal/leaf/initprogram"
	"github.com/forkd/forkd/internal/leaf/stopsignal"
)

// Limits of a service's check. The agent checks a ready service once a second at most.
const (
	minLiveness = time.Second
	minReady    = time.Minute
	maxTime     = 24 * time.Hour
)

// Service returns the image's program as a service, with its health check and its stop signal. A check of the image
// becomes the check before the service is ready, and the one while it is.
func (c Config) Service() (api.ServiceSpec, error) {
	s := api.ServiceSpec{Command: c.Program(), StopSignal: c.StopSignal}
	switch {
	case len(s.Command) == 0:
		return s, errors.New("it has neither an entrypoint nor a command: name a program after --")
	case initprogram.Is(s.Command):
		return s, fmt.Errorf("its program %.64s is an init, which runs as the first process only, and in a guest forkd's "+
			"agent is that: name another program after --", s.Command[0])
	}
	if _, err := stopsignal.Parse(c.StopSignal); err != nil {
		return s, fmt.Errorf("stop signal %.40q: %w; give another one with --stop-signal, such as SIGTERM", c.StopSignal, err)
	}
	check, err := c.healthcheck()
	if err != nil {
		return s, fmt.Errorf("%w; leave it out with --no-healthcheck", err)
	}
	if check == nil {
		return s, nil
	}
	s.Ready = &api.ServiceReady{Command: check.Command,
		TimeoutSecs: min(max(check.Patience(), minReady), maxTime).Seconds(),
		IntervalMS:  int(min(max(check.Interval, 10*time.Millisecond), time.Second).Milliseconds())}
	s.Liveness = &api.ServiceLiveness{IntervalSecs: max(check.Interval, minLiveness).Seconds(),
		TimeoutSecs: max(check.Timeout, minLiveness).Seconds(), FailureThreshold: check.Retries}
	return s, nil
}

// healthcheck returns the image's check, or nil.
func (c Config) healthcheck() (*healthcheck.Check, error) {
	h := c.Healthcheck
	if h == nil {
		return nil, nil
	}
	d := healthcheck.Declared{Test: h.Test, Interval: duration(h.IntervalSecs), Timeout: duration(h.TimeoutSecs),
		StartPeriod: duration(h.StartPeriodSecs), Retries: h.Retries}
	return healthcheck.Resolve(d, c.shell())
}
