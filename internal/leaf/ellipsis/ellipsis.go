// Package ellipsis shortens texts that others had a hand in, before they go into an
// error, a log or a message. It owns the one way to cut: never inside of a
// character. Anything may call it. The trap: the mark of the cut comes on top of
// the limit, so a field of a fixed size needs a limit that is smaller by Mark.
package ellipsis

import "strings"

// Mark stands where a text was cut.
const Mark = "…"

// Clip is s, or its first bytes up to limit without a character in part, and Mark.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + Mark
}
