// Package jail is what makes a VMM process own nothing: a Plan says what it loses, Enter
// applies that to the calling process and executes the VMM. It owns the list of parts, the
// range of users, and the order of the steps. It starts no process: package spawner's server
// does, and Enter runs in the child, which is forkd-spawn once more. The trap: nearly
// all of it is per thread, so the goroutine must be locked to the thread that executes.
package jail
