// Package jail confines a VMM process. A Plan lists the restrictions. Enter applies them to the calling process
// and executes the VMM. The package owns the list of parts, the range of users, and the order of the steps. It
// starts no process: the server in package spawner does, and Enter runs in the child, which is forkd-spawn again.
// Beware: nearly all restrictions are per thread, so the goroutine must be locked to the thread that executes.
package jail
