// Package initprogram recognizes programs that work as the first process of a system only, by their names, and returns
// the command that runs such a program in a guest. There the agent is the first process, so the command gives the
// program namespaces of its own. The package knows systemd and the usual paths of an init; it reads no file.
package initprogram

import (
	"path"
	"slices"
)

// Runner is the command of a guest's agent that runs an init as the first process of its own namespaces. Older agents
// lack it.
const Runner = "/run/forkd/forkd-init"

// ReadyFlag makes Runner wait until the system of an init is up. The program follows it.
const ReadyFlag = "--ready"

// names are the last parts of the paths of such programs.
var names = []string{"init", "systemd", "openrc-init", "runit-init", "s6-svscan"}

// Is reports whether a command line starts such a program.
func Is(args []string) bool {
	return len(args) > 0 && slices.Contains(names, path.Base(args[0])) && path.IsAbs(args[0])
}

// Command returns the command line for a guest: that of Runner for an init, and args for any other program.
func Command(args []string) []string {
	if !Is(args) {
		return args
	}
	return append([]string{Runner}, args...)
}

// Ready returns a command that succeeds once the system of an init is up. It returns nil for any other program.
func Ready(args []string) []string {
	if !Is(args) {
		return nil
	}
	return []string{Runner, ReadyFlag, args[0]}
}
