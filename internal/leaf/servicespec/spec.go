// Package servicespec has the declaration of a service, a program that the agent supervises in its guest, and the
// states of services. Both ends of the agent's protocol check declarations with Spec.Check; package servicewire has
// the messages around them.
package servicespec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/leaf/environ"
	"github.com/forkd/forkd/internal/leaf/stopsignal"
)

// Limits of a service and of a guest's services.
const (
	MaxServices = 16        // of one guest
	MaxName     = 32        // bytes of a name
	MaxArgs     = 64        // arguments of a command
	maxText     = 16 << 10  // bytes of a command, and of an environment
	maxSpec     = 40 << 10  // bytes of a declaration as JSON
	maxPath     = 4096      // bytes of a directory, a user or an HTTP path
	MaxLog      = 4 << 20   // bytes of a log
	DefaultLog  = 256 << 10 // bytes of a log
	MinLog      = 4 << 10   // bytes of a log
)

// Default times of a service.
const (
	DefaultBackoff      = 200 * time.Millisecond
	DefaultBackoffMax   = 30 * time.Second
	DefaultReset        = time.Minute
	DefaultReadyTimeout = time.Minute
	DefaultInterval     = 250 * time.Millisecond
	DefaultStop         = 10 * time.Second

	DefaultLivenessInterval = 10 * time.Second
	DefaultLivenessTimeout  = 5 * time.Second
	DefaultFailures         = 3 // in a row
	minLiveness             = time.Second
	maxFailures             = 1000

	maxTime    = 24 * time.Hour
	minBackoff = 10 * time.Millisecond
)

// Policy names when a service that ended is started again.
type Policy string

// The policies. An empty policy is Always.
const (
	Always    Policy = "always"
	OnFailure Policy = "on-failure"
	Never     Policy = "never"
)

// Spec declares a service.
type Spec struct {
	Name        string            `json:"name"`                   // unique in the guest
	Command     []string          `json:"command"`                // program and its arguments
	Env         map[string]string `json:"env,omitempty"`          // overrides the guest's defaults
	Cwd         string            `json:"cwd,omitempty"`          // if empty, the guest's default
	User        string            `json:"user,omitempty"`         // if empty, the guest's default
	Port        int               `json:"port,omitempty"`         // on which it listens; 0 if none
	Ready       Ready             `json:"ready,omitzero"`         // check before it counts as ready
	Liveness    Liveness          `json:"liveness,omitzero"`      // the check of a ready service
	Restart     Policy            `json:"restart,omitempty"`      // if empty, always
	MaxRestarts int               `json:"max_restarts,omitempty"` // in a row; 0 means no limit
	Backoff     Backoff           `json:"backoff,omitzero"`       // waits between restarts
	StopSignal  string            `json:"stop_signal,omitempty"`  // package stopsignal; if empty, SIGTERM
	StopMS      int64             `json:"stop_ms,omitempty"`      // from the stop signal to SIGKILL; 0 is the default
	LogBytes    int64             `json:"log_bytes,omitempty"`    // kept of its output; 0 is the default
}

// Ready is the check of a started service. With neither a path nor a command it is a TCP connection
// to the port; without a port a service is ready as soon as it runs.
type Ready struct {
	HTTP       string   `json:"http,omitempty"`        // path that answers with a status from 200 to 399
	Command    []string `json:"command,omitempty"`     // program that exits with 0
	TimeoutMS  int64    `json:"timeout_ms,omitempty"`  // then it has failed; 0 is the default
	IntervalMS int64    `json:"interval_ms,omitempty"` // between two tries; 0 is the default
}

// Liveness repeats the check while the service is ready. After several failures in a row the service is restarted.
type Liveness struct {
	IntervalMS       int64 `json:"interval_ms,omitempty"`       // between two checks; 0 if a ready service is not checked
	TimeoutMS        int64 `json:"timeout_ms,omitempty"`        // of one check; 0 is the default
	FailureThreshold int   `json:"failure_threshold,omitempty"` // failures in a row; 0 is the default
}

// On reports whether a ready service is checked.
func (l Liveness) On() bool { return l.IntervalMS > 0 }

// Backoff is the wait before a restart. It doubles with each restart.
type Backoff struct {
	InitialMS int64 `json:"initial_ms,omitempty"` // before the first restart; 0 is the default
	MaxMS     int64 `json:"max_ms,omitempty"`     // ceiling; 0 is the default
	ResetMS   int64 `json:"reset_ms,omitempty"`   // time in a run after which the wait is the initial one; 0 is the default
}

var names = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// ValidName reports whether a name is a service's.
func ValidName(name string) bool { return names.MatchString(name) }

// Check returns an error that names the field of a bad declaration.
func (s Spec) Check() error {
	if !ValidName(s.Name) {
		return fmt.Errorf("service name %.40q: want 1 to %d small letters, digits, - or _, with a letter or digit first",
			s.Name, MaxName)
	}
	for _, err := range []error{
		checkCommand("command", s.Command, true), s.checkTexts(), s.checkReady(), s.checkLiveness(), s.checkRestart(),
		s.checkStop(),
	} {
		if err != nil {
			return fmt.Errorf("service %s: %w", s.Name, err)
		}
	}
	if b, err := json.Marshal(s); err != nil || len(b) > maxSpec {
		return fmt.Errorf("service %s: the declaration has more than %d bytes as JSON: use a script or a file", s.Name,
			maxSpec)
	}
	if s.LogBytes != 0 && (s.LogBytes < MinLog || s.LogBytes > MaxLog) {
		return fmt.Errorf("service %s: log of %d bytes: want %d to %d", s.Name, s.LogBytes, MinLog, MaxLog)
	}
	return nil
}

func (s Spec) checkTexts() error {
	if s.Port < 0 || s.Port > 65535 {
		return fmt.Errorf("port %d: want 1 to 65535", s.Port)
	}
	if err := environ.Check(s.Env); err != nil {
		return err
	}
	size := 0
	for k, v := range s.Env {
		size += len(k) + len(v) + 2
	}
	if size > maxText {
		return fmt.Errorf("environment of %d bytes: want at most %d", size, maxText)
	}
	for field, v := range map[string]string{"cwd": s.Cwd, "user": s.User} {
		if len(v) > maxPath || strings.ContainsRune(v, 0) {
			return fmt.Errorf("%s: want at most %d bytes without a zero byte", field, maxPath)
		}
	}
	return nil
}

func (s Spec) checkReady() error {
	r := s.Ready
	switch {
	case r.HTTP != "" && len(r.Command) > 0:
		return errors.New("ready: http and command exclude each other")
	case r.HTTP != "" && s.Port == 0:
		return errors.New("ready: http needs the service's port")
	case r.HTTP != "" && (r.HTTP[0] != '/' || len(r.HTTP) > maxPath || strings.ContainsFunc(r.HTTP, control)):
		return fmt.Errorf("ready: http path %.40q: want one that starts with /", r.HTTP)
	}
	return errors.Join(checkCommand("ready command", r.Command, false), checkTime("ready timeout_ms", r.TimeoutMS),
		checkTime("ready interval_ms", r.IntervalMS))
}

func (s Spec) checkLiveness() error {
	l := s.Liveness
	switch {
	case l == Liveness{}:
		return nil
	case !l.On() || ms(l.IntervalMS) < minLiveness:
		return fmt.Errorf("liveness interval_ms %d: want at least %d", l.IntervalMS, minLiveness.Milliseconds())
	case s.Port == 0 && len(s.Ready.Command) == 0:
		return errors.New("liveness: there is no check to repeat: declare a port or a ready command")
	case l.TimeoutMS != 0 && ms(l.TimeoutMS) < minLiveness:
		return fmt.Errorf("liveness timeout_ms %d: want at least %d", l.TimeoutMS, minLiveness.Milliseconds())
	case l.FailureThreshold < 0 || l.FailureThreshold > maxFailures:
		return fmt.Errorf("liveness failure_threshold %d: want 1 to %d", l.FailureThreshold, maxFailures)
	}
	return errors.Join(checkTime("liveness interval_ms", l.IntervalMS), checkTime("liveness timeout_ms", l.TimeoutMS))
}

func (s Spec) checkRestart() error {
	if s.Restart != "" && !slices.Contains([]Policy{Always, OnFailure, Never}, s.Restart) {
		return fmt.Errorf("restart %.40q: want always, on-failure or never", s.Restart)
	}
	if s.MaxRestarts < 0 || s.MaxRestarts > 1_000_000 {
		return fmt.Errorf("max_restarts %d: want 0 to 1000000", s.MaxRestarts)
	}
	b := s.Backoff
	if b.InitialMS != 0 && ms(b.InitialMS) < minBackoff {
		return fmt.Errorf("backoff of %d ms: want at least %d", b.InitialMS, minBackoff.Milliseconds())
	}
	if b.InitialMS != 0 && b.MaxMS != 0 && b.MaxMS < b.InitialMS {
		return fmt.Errorf("backoff max_ms %d is below initial_ms %d", b.MaxMS, b.InitialMS)
	}
	return errors.Join(checkTime("backoff initial_ms", b.InitialMS), checkTime("backoff max_ms", b.MaxMS),
		checkTime("backoff reset_ms", b.ResetMS))
}

func (s Spec) checkStop() error {
	if _, err := stopsignal.Parse(s.StopSignal); err != nil {
		return fmt.Errorf("stop_signal %.40q: %w", s.StopSignal, err)
	}
	return checkTime("stop_ms", s.StopMS)
}

func checkCommand(what string, args []string, needed bool) error {
	if len(args) == 0 && !needed {
		return nil
	}
	if len(args) == 0 || args[0] == "" {
		return fmt.Errorf("%s: no program to run", what)
	}
	size := 0
	for _, a := range args {
		size += len(a) + 1
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("%s: an argument has a zero byte", what)
		}
	}
	if len(args) > MaxArgs || size > maxText {
		return fmt.Errorf("%s of %d arguments and %d bytes: want at most %d and %d: use a script", what, len(args), size,
			MaxArgs, maxText)
	}
	return nil
}

func checkTime(what string, v int64) error {
	if v < 0 || v > maxTime.Milliseconds() {
		return fmt.Errorf("%s %d: want 0 to %d", what, v, maxTime.Milliseconds())
	}
	return nil
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

func ms(v int64) time.Duration { return time.Duration(v) * time.Millisecond }

// Equal reports whether two declarations are the same.
func (s Spec) Equal(o Spec) bool {
	return s.Name == o.Name && slices.Equal(s.Command, o.Command) && maps.Equal(s.Env, o.Env) && s.Cwd == o.Cwd &&
		s.User == o.User && s.Port == o.Port && s.Ready.HTTP == o.Ready.HTTP &&
		slices.Equal(s.Ready.Command, o.Ready.Command) && s.Ready.TimeoutMS == o.Ready.TimeoutMS &&
		s.Ready.IntervalMS == o.Ready.IntervalMS && s.Liveness == o.Liveness && s.Restart == o.Restart &&
		s.MaxRestarts == o.MaxRestarts && s.Backoff == o.Backoff &&
		s.StopSignal == o.StopSignal && s.StopMS == o.StopMS && s.LogBytes == o.LogBytes
}

// CheckAll returns an error if declarations for one guest are bad.
func CheckAll(specs []Spec) error {
	if len(specs) > MaxServices {
		return fmt.Errorf("%d services: a sandbox has at most %d", len(specs), MaxServices)
	}
	seen := map[string]bool{}
	for _, s := range specs {
		if err := s.Check(); err != nil {
			return err
		}
		if seen[s.Name] {
			return fmt.Errorf("service %s is declared twice", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}
