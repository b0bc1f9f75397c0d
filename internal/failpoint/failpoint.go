// Package failpoint marks the steps of operations that a crash could separate.
// It owns the list of them and the way a test stops a process at one; what is
// done to the process then is the test's. Any package may call Here. It does
// nothing unless FORKD_TEST_FAILPOINTS names a directory, which only tests do. In
// it a process that comes by a step
//
//   - appends the step's name to the file passed, as a line;
//   - if there is a file armed-<step>, makes the file reached-<step> and waits
//     until the former is removed.
//
// The trap: a step in a place where a lock is held holds up all that need it.
package failpoint

import (
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Variable names the directory; the daemon hands it on to its VMMs.
const Variable = "FORKD_TEST_FAILPOINTS"

// Names in the directory.
const (
	PassedFile    = "passed"
	ArmedPrefix   = "armed-"
	ReachedPrefix = "reached-"
)

var directory = sync.OnceValue(func() string { return os.Getenv(Variable) })

// Here is called between the step that s names and the next.
func Here(s Step) {
	if dir := directory(); dir != "" {
		stop(dir, s)
	}
}

// Environ is what a process that is started with an environment of its own needs.
func Environ() []string {
	if dir := directory(); dir != "" {
		return []string{Variable + "=" + dir}
	}
	return nil
}

// stop ignores errors: a test that does not see its step reached fails by that.
func stop(dir string, s Step) {
	if f, err := os.OpenFile(filepath.Join(dir, PassedFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err == nil {
		_, _ = f.WriteString(string(s) + "\n")
		f.Close()
	}
	armed := filepath.Join(dir, ArmedPrefix+string(s))
	if _, err := os.Stat(armed); err != nil {
		return
	}
	_ = os.WriteFile(filepath.Join(dir, ReachedPrefix+string(s)), nil, 0o600)
	for err := error(nil); err == nil; _, err = os.Stat(armed) {
		time.Sleep(time.Millisecond)
	}
}
