package build

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Levels of entries, with the names clients use.
const (
	LevelDebug = "debug"
	LevelInfo  = "info"
	LevelWarn  = "warn"
	LevelError = "error"
)

// Limits of a build's log.
const (
	maxEntries = 20_000
	maxLine    = 8 << 10
	maxLog     = 8 << 20
	// keptForEnd is the number of entries reserved for the build itself. Programs cannot use them.
	keptForEnd = 500
)

// Entry is a line of a build's log.
type Entry struct {
	Time    time.Time `json:"timestamp"`      // in UTC
	Level   string    `json:"level"`          // one of the Level constants
	Message string    `json:"message"`        // valid UTF-8, clipped to 8 KiB
	Step    string    `json:"step,omitempty"` // step's number from 1, base or finalize; may be empty
}

// log is the log of a build. Entries never change, so offsets stay valid.
type log struct {
	now     func() time.Time
	group   *logs // if nil, there are no other logs
	owner   string
	id      string // of the build
	charged int    // bytes that the group counts

	mu      sync.Mutex // guards the fields below
	entries []Entry
	bytes   int
	cut     bool
}

// say adds an entry of the build itself.
func (l *log) say(level, step, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) < maxEntries && l.bytes < maxLog+keptForEnd*maxLine/2 {
		l.addLocked(level, step, message, true)
	}
}

// output adds a line of a program's output, while there is space.
func (l *log) output(step, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.cut:
	case len(l.entries) >= maxEntries-keptForEnd || l.bytes >= maxLog:
		l.cut = true
		l.addLocked(LevelWarn, step, "the log is full: output that follows is not shown", true)
	case !l.addLocked(LevelInfo, step, message, false):
		l.cut = true
		l.addLocked(LevelWarn, step, "the logs of all builds are full: output that follows is not shown", true)
	}
}

// addLocked adds an entry, unless the logs of the owner's builds are full.
func (l *log) addLocked(level, step, message string, own bool) bool {
	message = ellipsis.Clip(strings.ToValidUTF8(message, "\uFFFD"), maxLine)
	if !l.group.charge(l, len(message), own) {
		return false
	}
	l.bytes += len(message)
	l.entries = append(l.entries, Entry{l.now().UTC(), level, message, step})
	return true
}

// from returns at most limit entries, beginning at an offset.
func (l *log) from(offset, limit int) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset < 0 || offset >= len(l.entries) {
		return []Entry{}
	}
	return append([]Entry{}, l.entries[offset:min(offset+limit, len(l.entries))]...)
}

// of returns the last entries of a step.
func (l *log) of(step string, limit int) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []Entry{}
	for i := len(l.entries) - 1; i >= 0 && len(out) < limit; i-- {
		if l.entries[i].Step == step {
			out = append(out, l.entries[i])
		}
	}
	slices.Reverse(out)
	return out
}

// lines passes on a program's output line by line. It is for one stream and one goroutine.
type lines struct {
	to   func(line string)
	rest []byte
}

func (l *lines) add(chunk []byte) {
	for len(chunk) > 0 {
		// Only the bytes that fit in a line are searched, so each byte is read once.
		part := chunk[:min(len(chunk), maxLine-len(l.rest))]
		end := bytes.IndexByte(part, '\n')
		if end >= 0 {
			part = part[:end]
		}
		if cr := bytes.IndexByte(part, '\r'); cr >= 0 {
			part, end = part[:cr], cr
		}
		l.rest = append(l.rest, part...)
		chunk = chunk[len(part):]
		if end >= 0 {
			chunk = chunk[1:]
		}
		if end >= 0 || len(l.rest) >= maxLine {
			l.end()
		}
	}
}

// end passes on a last line without a newline.
func (l *lines) end() {
	if len(l.rest) > 0 {
		l.to(string(l.rest))
		l.rest = l.rest[:0]
	}
}
