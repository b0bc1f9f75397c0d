// Package drain empties a daemon for maintenance. While a drain is on, requests for new sandboxes are
// refused, and running sandboxes are paused or waited for. The order is kept in a file, so a daemon
// that starts again goes on with it. It does not know how sandboxes are paused: the engine passes its
// operations. The engine's operations and the API call it. The trap: a request that makes a sandbox
// must call Enter before it does anything, and leave only when the sandbox is listed. Otherwise the
// daemon appears empty while a sandbox is being made.
package drain
