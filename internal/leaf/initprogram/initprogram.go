// Package initprogram recognizes programs that work as the first process of a system only, by their names. In a guest
// the agent is the first process. The package knows systemd and the usual paths of an init; it reads no file.
package initprogram

import (
	"path"
	"slices"
)

// names are the last parts of the paths of such programs.
var names = []string{"init", "systemd", "openrc-init", "runit-init", "s6-svscan"}

// Is reports whether a command line starts such a program.
func Is(args []string) bool {
	return len(args) > 0 && slices.Contains(names, path.Base(args[0])) && path.IsAbs(args[0])
}
