package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// tryTimeout limits one try of a check before the service is ready, unless its liveness has a longer limit.
const tryTimeout = 5 * time.Second

// awaitReady tries a service's check until it succeeds. It returns an error when the time is up or ctx
// ends.
func (s *Supervisor) awaitReady(ctx context.Context, spec servicespec.Spec) error {
	limit := orDefault(spec.Ready.TimeoutMS, servicespec.DefaultReadyTimeout)
	ctx, cancel := s.after.patient(ctx, limit, fmt.Errorf("it was not ready after %s", limit))
	defer cancel()
	wait := time.NewTimer(0) // the first try is immediate
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wait.C:
		}
		if err := s.try(ctx, spec, max(tryTimeout, ms(spec.Liveness.TimeoutMS))); err == nil {
			return nil
		}
		wait.Reset(max(orDefault(spec.Ready.IntervalMS, servicespec.DefaultInterval), 10*time.Millisecond))
	}
}

// try checks a service once.
func (s *Supervisor) try(ctx context.Context, spec servicespec.Spec, limit time.Duration) error {
	ctx, cancel := s.after.patient(ctx, limit, fmt.Errorf("no answer in %s", limit))
	defer cancel()
	err := s.check(ctx, spec)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (s *Supervisor) check(ctx context.Context, spec servicespec.Spec) error {
	switch {
	case len(spec.Ready.Command) > 0:
		return s.tryCommand(ctx, spec)
	case spec.Ready.HTTP != "":
		return tryHTTP(ctx, spec.Port, spec.Ready.HTTP)
	case spec.Port != 0:
		c, err := dial(ctx, spec.Port)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	return nil
}

// dial connects to a port of the guest's loopback, over IPv4 or IPv6.
func dial(ctx context.Context, port int) (net.Conn, error) {
	var d net.Dialer
	var errs []error
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func tryHTTP(ctx context.Context, port int, path string) error {
	client := http.Client{
		Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, port) },
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+net.JoinHostPort("localhost", strconv.Itoa(port))+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4096)
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// tryCommand runs a check. Its output is discarded.
func (s *Supervisor) tryCommand(ctx context.Context, spec servicespec.Spec) error {
	check := spec
	check.Command = spec.Ready.Command
	p, err := s.cfg.Start(check, nil)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
	p.Kill()
	<-p.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	if code := p.ExitCode(); code != 0 {
		return fmt.Errorf("exit code %d", code)
	}
	return nil
}

func orDefault(v int64, d time.Duration) time.Duration {
	if v == 0 {
		return d
	}
	return ms(v)
}

func ms(v int64) time.Duration { return time.Duration(v) * time.Millisecond }
