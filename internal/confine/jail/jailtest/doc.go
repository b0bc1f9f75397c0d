// Package jailtest contains the actions that an attacker in a VMM's process would try. Each Attempt runs in the
// calling process and thread, and reports the error number that stopped it. The package owns the list of attempts
// and their outcomes. Only test processes and the hostile VMM use it (tag hostile of cmd/forkd-vmm); no program
// links it. Beware: a system call filter ends the process, so an attempt returns "ok" or an error number only
// where no filter kills it.
package jailtest
