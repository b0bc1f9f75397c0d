package jailtest

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// World lists targets outside of the process, filled in by the test.
type World struct {
	PID      int    `json:",omitempty"` // a process of the host
	Abstract string `json:",omitempty"` // name of an abstract socket of the host
	Socket   string `json:",omitempty"` // path of a socket of the daemon or of another VMM
	TCP      int    `json:",omitempty"` // a port at 127.0.0.1 of the host
	File     string `json:",omitempty"` // path of a file
}

// Attempt is one action to try. If it fails, it leaves the process unchanged.
type Attempt struct {
	Name string
	do   func(World) error
}

// Results of attempts, besides names of error numbers.
const (
	OK      = "ok"      // it succeeded
	Nothing = "nothing" // the process lacks the object to try it with
)

// errNothing is returned if no call was made.
var errNothing = errors.New(Nothing)

// Try makes the attempt and returns its Answer.
func (a Attempt) Try(w World) string { return Answer(a.do(w)) }

// Answer returns OK, Nothing, or the name of the error number.
func Answer(err error) string {
	errno := unix.Errno(0)
	switch {
	case err == nil:
		return OK
	case errors.Is(err, errNothing):
		return Nothing
	case errors.As(err, &errno) && unix.ErrnoName(errno) != "":
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// Named returns the attempt with this name, or false.
func Named(name string) (Attempt, bool) {
	i := slices.IndexFunc(attempts, func(a Attempt) bool { return a.Name == name })
	if i < 0 {
		return Attempt{}, false
	}
	return attempts[i], true
}

// Attempts returns all attempts in order. The ones that exhaust a resource come last.
func Attempts() []Attempt { return slices.Clone(attempts) }

// closed closes a descriptor obtained by an attempt.
func closed(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}
