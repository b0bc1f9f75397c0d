// Package environ checks the environment variables that clients set for programs in guests. The daemon and the
// agent use the same rules, so that an invalid request fails before any work is done. It does not know requests
// or guests. Beware: exec(2) limits the size of each variable and of all together, not only of names.
package environ

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

const (
	// MaxVariable is the largest size of NAME=VALUE, in bytes. Linux's MAX_ARG_STRLEN is 128 KiB including the
	// zero byte.
	MaxVariable = 128<<10 - 1
	// MaxTotal is the largest environment, in bytes. The kernel allows a quarter of the stack limit of 8 MiB for
	// arguments and environment together.
	MaxTotal = 1 << 20

	shownName = 64 // bytes of a name shown in an error
)

// Check returns an error if programs cannot be started with these variables. It names the first bad variable in
// alphabetical order.
func Check(env map[string]string) error {
	total := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if err := check(name, env[name]); err != nil {
			return err
		}
		total += len(name) + len(env[name]) + 2
	}
	if total > MaxTotal {
		return fmt.Errorf("environment of %d bytes, want at most %d: pass large values in a file", total, MaxTotal)
	}
	return nil
}

func check(name, value string) error {
	switch {
	case name == "":
		return errors.New("environment variable without a name")
	case strings.Contains(name, "="):
		return fmt.Errorf(`environment variable %q: a name cannot contain "="`, shown(name))
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("environment variable %q: a name cannot contain control characters", shown(name))
	case strings.Contains(value, "\x00"):
		return fmt.Errorf("environment variable %q: a value cannot contain a zero byte", shown(name))
	case len(name)+1+len(value) > MaxVariable:
		return fmt.Errorf("environment variable %q has %d bytes, want at most %d: pass large values in a file",
			shown(name), len(name)+1+len(value), MaxVariable)
	}
	return nil
}

func shown(name string) string { return name[:min(len(name), shownName)] }
