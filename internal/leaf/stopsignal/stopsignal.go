// Package stopsignal reads the signal that asks a container's program to end, in Docker's spellings. Numbers are those
// of Linux on x86-64, on every host: the program runs in a guest. It sends no signal.
package stopsignal

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Default is SIGTERM, the signal of images without another one.
const Default = 15

// Max is the highest signal of Linux.
const Max = 64

// The first and the last real-time signal, as Docker and glibc count them.
const (
	rtMin = 34
	rtMax = Max
)

// MaxText limits a spelling, in bytes.
const MaxText = 16

// ErrUnknown is the error for any other text.
var ErrUnknown = errors.New("want a name such as SIGTERM or QUIT, SIGRTMIN+3, or a number from 1 to 64")

// names holds the names of the signals without SIG, by number from 1.
var names = []string{"HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
	"ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
	"WINCH", "IO", "PWR", "SYS"}

// aliases are the other names of signals.
var aliases = map[string]string{"IOT": "ABRT", "CLD": "CHLD", "POLL": "IO"}

// Parse returns the number of a signal. An empty text is Default.
func Parse(text string) (int, error) {
	if text == "" {
		return Default, nil
	}
	if len(text) > MaxText {
		return 0, ErrUnknown
	}
	if n, ok := number(text); ok {
		if n < 1 || n > Max {
			return 0, ErrUnknown
		}
		return n, nil
	}
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if other, ok := aliases[name]; ok {
		name = other
	}
	if i := slices.Index(names, name); i >= 0 {
		return i + 1, nil
	}
	return realTime(name)
}

// realTime reads RTMIN, RTMIN+n, RTMAX and RTMAX-n.
func realTime(name string) (int, error) {
	base, sign := rtMin, 1
	offset, ok := strings.CutPrefix(name, "RTMIN")
	if !ok {
		base, sign = rtMax, -1
		if offset, ok = strings.CutPrefix(name, "RTMAX"); !ok {
			return 0, ErrUnknown
		}
	}
	if offset == "" {
		return base, nil
	}
	n, ok := number(offset[1:])
	if !ok || offset[0] != "-+"[(sign+1)/2] || n > rtMax-rtMin {
		return 0, ErrUnknown
	}
	return base + sign*n, nil
}

// number reads up to three decimal digits without a sign.
func number(text string) (int, bool) {
	if text == "" || len(text) > 3 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// Name returns the usual name of a signal.
func Name(n int) string {
	switch {
	case n >= 1 && n <= len(names):
		return "SIG" + names[n-1]
	case n >= rtMin && n <= rtMax:
		return "SIGRTMIN+" + strconv.Itoa(n-rtMin)
	}
	return strconv.Itoa(n)
}
