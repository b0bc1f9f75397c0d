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

	// initLimit is the time for the start of an init's services, on a busy host.
	initLimit = 5 * time.Minute
)

// Service returns the image's program as a service, with its health check and its stop signal. A check of the image
// becomes the check before the service is ready, and the one while it is. An init without a check is ready when its
// system is up.
func (c Config) Service() (api.ServiceSpec, error) {
	program := c.Program()
	s := api.ServiceSpec{Command: initprogram.Command(program), StopSignal: c.StopSignal}
	if len(program) == 0 {
		return s, errors.New("it has neither an entrypoint nor a command: name a program after --")
	}
	if _, err := stopsignal.Parse(c.StopSignal); err != nil {
		return s, fmt.Errorf("stop signal %.40q: %w; give another one with --stop-signal, such as SIGTERM", c.StopSignal, err)
	}
	check, err := c.healthcheck()
	if err != nil {
		return s, fmt.Errorf("%w; leave it out with --no-healthcheck", err)
	}
	if up := initprogram.Ready(program); check == nil && up != nil {
		s.Ready = &api.ServiceReady{Command: up, TimeoutSecs: initLimit.Seconds(), IntervalMS: 1000}
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
