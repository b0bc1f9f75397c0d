package jailtest

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// World is what there is to reach for outside, told by the test.
type World struct {
	PID      int    `json:",omitempty"` // of a process of the host
	Abstract string `json:",omitempty"` // name of an abstract socket of the host
	Socket   string `json:",omitempty"` // path of a socket, of a sibling's or the daemon's
	TCP      int    `json:",omitempty"` // a port at 127.0.0.1 of the host
	File     string `json:",omitempty"` // path of a file
}

// Attempt is one thing to try. It leaves the process as it was, as far as it failed.
type Attempt struct {
	Name string
	do   func(World) error
}

// What an attempt came to, beside names of error numbers.
const (
	OK      = "ok"      // it could
	Nothing = "nothing" // the process has nothing to try it with
)

// errNothing is OK's opposite where no call was made.
var errNothing = errors.New(Nothing)

// Try makes the attempt, and gives its Answer.
func (a Attempt) Try(w World) string { return Answer(a.do(w)) }

// Answer is OK, Nothing, or the name of the error number.
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

// Named is the attempt of that name; false: there is none.
func Named(name string) (Attempt, bool) {
	i := slices.IndexFunc(attempts, func(a Attempt) bool { return a.Name == name })
	if i < 0 {
		return Attempt{}, false
	}
	return attempts[i], true
}

// Attempts are all, in the order in which to make them: what takes all of something is last.
func Attempts() []Attempt { return slices.Clone(attempts) }

// closed closes what an attempt has got.
func closed(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}
