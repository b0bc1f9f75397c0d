package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/servicewire"
)

// supervise runs a service until it is stopped or its policy ends it. It returns the last state.
func (s *Supervisor) supervise(ctx context.Context, v *service) (servicewire.State, error) {
	spec := v.st.Spec // never changes
	first := orDefault(spec.Backoff.InitialMS, servicewire.DefaultBackoff)
	wait, inRow := first, 0
	for {
		began := time.Now()
		code, err := s.once(ctx, v)
		if ctx.Err() != nil {
			return servicewire.Stopped, nil
		}
		if time.Since(began) >= orDefault(spec.Backoff.ResetMS, servicewire.DefaultReset) {
			wait, inRow = first, 0
		}
		good := err == nil && code == 0
		switch {
		case good && (spec.Restart == servicewire.OnFailure || spec.Restart == servicewire.Never):
			return servicewire.Stopped, nil
		case spec.Restart == servicewire.Never:
			return servicewire.Failed, ended(code, err)
		case spec.MaxRestarts > 0 && inRow >= spec.MaxRestarts:
			return servicewire.Failed, fmt.Errorf("restarted %d times in a row: %w", inRow, ended(code, err))
		}
		s.set(v, func(st *servicewire.Status) {
			st.State, st.PID, st.Error = servicewire.BackingOff, 0, servicewire.ClipError(ended(code, err))
		})
		select {
		case <-ctx.Done():
			return servicewire.Stopped, nil
		case <-time.After(wait):
		}
		wait, inRow = min(2*wait, max(first, orDefault(spec.Backoff.MaxMS, servicewire.DefaultBackoffMax))), inRow+1
		s.set(v, func(st *servicewire.Status) { st.State, st.Restarts = servicewire.Starting, st.Restarts+1 })
	}
}

func ended(code int, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("it ended with exit code %d", code)
}

// once runs a service's program to its end, and kills the processes it left. The error says why it
// did not start or did not become ready.
func (s *Supervisor) once(ctx context.Context, v *service) (code int, _ error) {
	spec := v.st.Spec
	out, theirs, err := os.Pipe()
	if err != nil {
		return -1, fmt.Errorf("make pipe: %w", err)
	}
	p, err := s.cfg.Start(spec, theirs)
	_ = theirs.Close()
	if err != nil {
		_ = out.Close()
		return -1, fmt.Errorf("start: %w", err)
	}
	copied := make(chan struct{})
	go func() { // ends with the deadline below at the latest
		defer close(copied)
		_, _ = io.CopyBuffer(struct{ io.Writer }{v.log}, struct{ io.Reader }{out}, make([]byte, 16<<10))
	}()
	s.set(v, func(st *servicewire.Status) { st.PID = p.PID() })
	err = s.watch(ctx, v, p)
	p.Kill() // what it left behind must not keep its port
	<-p.Done()
	_ = out.SetReadDeadline(time.Now().Add(lingering))
	<-copied
	_ = out.Close()
	code = p.ExitCode()
	s.set(v, func(st *servicewire.Status) { st.ExitCode, st.PID = &code, 0 })
	return code, err
}

// lingering is the time for the rest of an ended program's output.
const lingering = 100 * time.Millisecond

// watch waits until a program has ended, or ends it: with ctx, or because it does not become ready.
func (s *Supervisor) watch(ctx context.Context, v *service, p Process) error {
	checking, cancel := context.WithCancel(ctx)
	defer cancel()
	checked := make(chan error, 1)
	go func() { checked <- s.awaitReady(checking, v.st.Spec) }()
	for {
		select {
		case <-p.Done():
			return nil
		case <-ctx.Done():
			terminate(p, orDefault(v.st.Spec.StopMS, servicewire.DefaultStop))
			return nil
		case err := <-checked:
			switch {
			case err == nil:
				s.set(v, func(st *servicewire.Status) { st.State, st.Error = servicewire.IsReady, "" })
			case !errors.Is(err, context.Canceled):
				terminate(p, orDefault(v.st.Spec.StopMS, servicewire.DefaultStop))
				return err
			}
		}
	}
}

// terminate asks a program to end. The caller kills it afterwards.
func terminate(p Process, grace time.Duration) {
	p.Term()
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-p.Done():
	case <-limit.C:
	}
}
