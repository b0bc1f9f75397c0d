//go:build linux

package compile

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Limits of a list, because the parser may be given any input.
const (
	maxLines  = 1000
	maxValues = 64
	maxArg    = 5
)

// list is a parsed list.
type list struct {
	allow bool // default for calls that are not listed
	calls []call
}

// call has the rules for one system call.
type call struct {
	name   string
	number uint32
	cases  []answer // in order: the first one with matching conditions applies
}

// answer is one line of a list.
type answer struct {
	when  []condition // all must hold
	errno uint32      // error of the call; if 0, it is allowed, or killed if the default is to allow
}

// condition tests one argument: after masking, it must equal one of the values.
type condition struct {
	arg    int
	mask   uint32 // 0 for no mask, and then the upper half must be 0
	values []uint32
}

// parse parses a list.
func parse(text []byte) (*list, error) {
	var l list
	at := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		err := l.add(words, at)
		if n > maxLines {
			err = fmt.Errorf("more than %d lines", maxLines)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if at[defaultWord] == 0 {
		return nil, fmt.Errorf("it does not say what the %s is", defaultWord)
	}
	return &l, nil
}

const defaultWord = "default"

// add adds a line. at holds the position of each call, counted from 1.
func (l *list) add(words []string, at map[string]int) error {
	name := words[0]
	if name == defaultWord {
		if len(words) != 2 || at[name] != 0 || words[1] != "kill" && words[1] != "allow" {
			return fmt.Errorf("want once: %s kill, or %s allow", name, name)
		}
		l.allow, at[name] = words[1] == "allow", 1
		return nil
	}
	number, known := syscalls[name]
	if !known {
		return fmt.Errorf("no system call is named %q (names.go)", name)
	}
	a, err := parseAnswer(words[1:])
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if at[name] == 0 {
		l.calls = append(l.calls, call{name: name, number: number})
		at[name] = len(l.calls)
	}
	c := &l.calls[at[name]-1]
	if n := len(c.cases); n > 0 && len(c.cases[n-1].when) == 0 {
		return fmt.Errorf("%s: an earlier line has no conditions", name)
	}
	c.cases = append(c.cases, a)
	return nil
}

// parseAnswer parses the words after a name: conditions and an errno.
func parseAnswer(words []string) (a answer, err error) {
	if n := len(words); n >= 2 && words[n-2] == "->" {
		if a.errno, err = value(words[n-1]); err != nil {
			return a, err
		}
		if a.errno == 0 || a.errno > 4095 {
			return a, fmt.Errorf("%q is no errno", words[n-1])
		}
		words = words[:n-2]
	}
	for len(words) > 0 {
		end := 0
		for end < len(words) && words[end] != "and" {
			end++
		}
		c, err := parseCondition(words[:end])
		if err != nil {
			return a, err
		}
		if a.when = append(a.when, c); end == len(words) {
			break
		}
		if words = words[end+1:]; len(words) == 0 {
			return a, fmt.Errorf("nothing behind the last and")
		}
	}
	return a, nil
}

func parseCondition(words []string) (c condition, err error) {
	if len(words) < 3 {
		return c, fmt.Errorf("condition %q: want argN == VALUE, argN & MASK == VALUE, or argN in VALUES", words)
	}
	digit, is := strings.CutPrefix(words[0], "arg")
	if c.arg, err = strconv.Atoi(digit); !is || err != nil || len(digit) != 1 || c.arg > maxArg {
		return c, fmt.Errorf("%q: want arg0 to arg%d", words[0], maxArg)
	}
	rest := words[1:]
	if rest[0] == "&" && len(rest) == 4 {
		if c.mask, err = value(rest[1]); err != nil {
			return c, err
		}
		if c.mask == 0 {
			return c, fmt.Errorf("mask %q is 0", rest[1])
		}
		rest = rest[2:]
	}
	switch {
	case rest[0] == "==" && len(rest) == 2:
	case rest[0] == "in" && len(rest) <= maxValues && c.mask == 0:
	default:
		return c, fmt.Errorf("condition %q: want ==, & MASK ==, or in", words)
	}
	for _, w := range rest[1:] {
		v, err := value(w)
		if err != nil {
			return c, err
		}
		if c.mask != 0 && v&^c.mask != 0 {
			return c, fmt.Errorf("%q has bits that the mask has not", w)
		}
		c.values = append(c.values, v)
	}
	return c, nil
}

// value parses a number, a constant, or several joined by |.
func value(word string) (v uint32, err error) {
	for part := range strings.SplitSeq(word, "|") {
		c, known := constants[part]
		if !known {
			n, err := strconv.ParseUint(part, 0, 32)
			if err != nil {
				return 0, fmt.Errorf("%q is no number, and no constant of names.go", part)
			}
			c = uint32(n)
		}
		v |= c
	}
	return v, nil
}
