package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/servicespec"
	"github.com/forkd/forkd/internal/leaf/stopsignal"
)

// supervise runs a service until it is stopped or its policy ends it. It returns the last state.
func (s *Supervisor) supervise(ctx context.Context, v *service) (servicespec.State, error) {
	spec := v.st.Spec // never changes
	first := orDefault(spec.Backoff.InitialMS, servicespec.DefaultBackoff)
	if t := s.place(v); t.pause && !s.pause(ctx, v, t.wait) {
		return servicespec.Stopped, nil
	}
	for {
		code, length, err := s.once(ctx, v)
		if ctx.Err() != nil {
			return servicespec.Stopped, nil
		}
		t := s.place(v)
		if length >= orDefault(spec.Backoff.ResetMS, servicespec.DefaultReset) {
			t.wait, t.inRow = first, 0
		}
		good := err == nil && code == 0
		switch {
		case good && (spec.Restart == servicespec.OnFailure || spec.Restart == servicespec.Never):
			return servicespec.Stopped, nil
		case spec.Restart == servicespec.Never:
			return servicespec.Failed, ended(code, err)
		case spec.MaxRestarts > 0 && t.inRow >= spec.MaxRestarts:
			return servicespec.Failed, fmt.Errorf("restarted %d times in a row: %w", t.inRow, ended(code, err))
		}
		s.set(v, func(st *servicespec.Status) {
			st.State, st.PID, st.Error = servicespec.BackingOff, 0, servicespec.ClipError(ended(code, err))
			v.turn.wait, v.turn.inRow, v.turn.pause = t.wait, t.inRow, true
		})
		if !s.pause(ctx, v, t.wait) {
			return servicespec.Stopped, nil
		}
	}
}

// place returns the place of a service's loop.
func (s *Supervisor) place(v *service) turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return v.turn
}

// pause waits before a restart. It returns false when ctx ends.
func (s *Supervisor) pause(ctx context.Context, v *service, wait time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
	}
	back := v.st.Spec.Backoff
	most := max(orDefault(back.InitialMS, servicespec.DefaultBackoff),
		orDefault(back.MaxMS, servicespec.DefaultBackoffMax))
	s.set(v, func(st *servicespec.Status) {
		st.State, st.Restarts = servicespec.Starting, st.Restarts+1
		v.turn.wait, v.turn.inRow, v.turn.pause = min(2*wait, most), v.turn.inRow+1, false
	})
	return true
}

func ended(code int, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("it ended with exit code %d", code)
}

// run is a running program of a service.
type run struct {
	p     Process
	out   *os.File // its output
	began time.Time
	ready bool // its check has succeeded
}

// once runs a service's program to its end, and kills the processes it left. A program that runs
// already is watched from now on. The error says why it did not start or did not become or stay ready.
func (s *Supervisor) once(ctx context.Context, v *service) (code int, length time.Duration, _ error) {
	r := s.place(v).run
	if r == nil {
		var err error
		if r, err = s.begin(v.st.Spec); err != nil {
			return -1, 0, err
		}
	}
	copied := make(chan struct{})
	go func() { // ends with the deadline below at the latest
		defer close(copied)
		s.copyLog(v.log, r.out)
	}()
	s.set(v, func(st *servicespec.Status) { st.PID, v.turn.run = r.p.PID(), r })
	err := s.watch(ctx, v, r)
	r.p.Kill() // what it left behind must not keep its port
	<-r.p.Done()
	_ = r.out.SetReadDeadline(time.Now().Add(lingering))
	<-copied
	_ = r.out.Close()
	code = r.p.ExitCode()
	s.set(v, func(st *servicespec.Status) { st.ExitCode, st.PID, v.turn.run = &code, 0, nil })
	return code, time.Since(r.began), err
}

// begin starts a service's program.
func (s *Supervisor) begin(spec servicespec.Spec) (*run, error) {
	began := time.Now()
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	p, err := s.cfg.Start(spec, theirs)
	_ = theirs.Close()
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("start: %w", err)
	}
	return &run{p: p, out: out, began: began}, nil
}

// copyLog copies output to a log until its end, or its deadline. The gate is locked from the read on.
func (s *Supervisor) copyLog(l *log, out *os.File) {
	c, err := out.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 16<<10)
	for more := true; more; {
		err := c.Read(func(fd uintptr) bool {
			s.cfg.Gate.RLock()
			defer s.cfg.Gate.RUnlock()
			n, err := unix.Read(int(fd), buf)
			if errors.Is(err, unix.EAGAIN) {
				return false
			}
			if n > 0 {
				_, _ = l.Write(buf[:n])
			}
			more = n > 0 || errors.Is(err, unix.EINTR)
			return true
		})
		more = more && err == nil
	}
}

// lingering is the time for the rest of an ended program's output.
const lingering = 100 * time.Millisecond

// watch waits until a program has ended, or ends it: with ctx, or because it does not become or stay ready.
func (s *Supervisor) watch(ctx context.Context, v *service, r *run) error {
	p := r.p
	checking, cancel := context.WithCancel(ctx)
	defer cancel()
	spec := v.st.Spec // never changes
	checked := make(chan error, 1)
	keep := func() {
		if spec.Liveness.On() {
			go func() { checked <- livenessOf(s, spec).run(checking) }()
		}
	}
	if r.ready {
		keep()
	} else {
		go func() { checked <- s.awaitReady(checking, spec) }()
	}
	for {
		select {
		case <-p.Done():
			return nil
		case <-ctx.Done():
			terminate(p, spec)
			return nil
		case err := <-checked:
			switch {
			case err == nil:
				s.set(v, func(st *servicespec.Status) { st.State, st.Error, r.ready = servicespec.IsReady, "", true })
				keep()
			case !errors.Is(err, context.Canceled):
				s.set(v, func(st *servicespec.Status) { st.State, st.Error = servicespec.BackingOff, servicespec.ClipError(err) })
				terminate(p, spec)
				return err
			}
		}
	}
}

// terminate asks a program to end. The caller kills it afterwards.
func terminate(p Process, spec servicespec.Spec) {
	sig, err := stopsignal.Parse(spec.StopSignal)
	if err != nil { // checked at its declaration
		sig = stopsignal.Default
	}
	p.Signal(sig)
	limit := time.NewTimer(orDefault(spec.StopMS, servicespec.DefaultStop))
	defer limit.Stop()
	select {
	case <-p.Done():
	case <-limit.C:
	}
}
