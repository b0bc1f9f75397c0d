package image

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	defaultReadySecs = 60
	maxReadySecs     = 600
	maxCommand       = 16 << 10
)

// Ready is the condition under which a service is ready. The snapshot waits for it. One of Port, Command and Log
// is set.
type Ready struct {
	Port        int       `yaml:"port" json:"port,omitempty"`       // TCP port on which a program listens
	Command     string    `yaml:"command" json:"command,omitempty"` // must succeed
	Log         *ReadyLog `yaml:"log" json:"log,omitempty"`
	TimeoutSecs int       `yaml:"timeout_secs" json:"timeout_secs,omitempty"` // 0 means a minute
}

// ReadyLog is a text that a service writes when it is ready.
type ReadyLog struct {
	File string `yaml:"file" json:"file,omitempty"` // if empty, the output of the recipe's start
	Text string `yaml:"text" json:"text"`
}

// Timeout returns the time limit.
func (r *Ready) Timeout() time.Duration {
	if r.TimeoutSecs == 0 {
		return defaultReadySecs * time.Second
	}
	return time.Duration(r.TimeoutSecs) * time.Second
}

// check also validates conditions from an image's metadata, which may come from another host.
func (r *Ready) check(start string) error {
	n := 0
	for _, there := range []bool{r.Port != 0, r.Command != "", r.Log != nil} {
		if there {
			n++
		}
	}
	switch {
	case n != 1:
		return errors.New("ready: want one of port, command and log")
	case r.Port < 0 || r.Port > 65535:
		return fmt.Errorf("ready: port is %d, want 1 to 65535", r.Port)
	case badCommand(r.Command):
		return fmt.Errorf("ready: command has %d bytes, want at most %d, and none of them 0", len(r.Command), maxCommand)
	case r.TimeoutSecs < 0 || r.TimeoutSecs > maxReadySecs:
		return fmt.Errorf("ready: timeout_secs is %d, want 1 to %d", r.TimeoutSecs, maxReadySecs)
	case r.Log == nil:
		return nil
	case r.Log.Text == "" || len(r.Log.Text) > 1024 || strings.ContainsAny(r.Log.Text, "\x00\n"):
		return errors.New("ready: log: text is to be a part of one line, of at most 1024 bytes")
	case r.Log.File == "" && start == "":
		return errors.New("ready: log has no file, and there is no start whose output it could be in")
	case r.Log.File != "" && !cleanAbs(r.Log.File):
		return fmt.Errorf("ready: log: file is %q, want a clean absolute path", r.Log.File)
	}
	return nil
}

func badCommand(s string) bool { return len(s) > maxCommand || strings.ContainsRune(s, 0) }

// checkService checks start, ready and first_use.
func (r *Recipe) checkService() error {
	for _, c := range []struct{ field, value string }{{"start", r.Start}, {"first_use", r.FirstUse}} {
		if badCommand(c.value) {
			return at(0, "%s has %d bytes, want at most %d, and none of them 0", c.field, len(c.value), maxCommand)
		}
	}
	if r.Ready == nil {
		return nil
	}
	if err := r.Ready.check(r.Start); err != nil {
		return at(0, "%v", err)
	}
	return nil
}
