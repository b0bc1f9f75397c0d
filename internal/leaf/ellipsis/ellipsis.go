// Package ellipsis shortens untrusted text for use in errors, logs and messages. It never cuts inside a
// character. Any package may use it. Beware: Mark is added on top of the limit, so a field of fixed size needs a
// limit smaller by len(Mark).
package ellipsis

import "strings"

// Mark is appended to truncated text.
const Mark = "…"

// Clip returns s if it has at most limit bytes. Otherwise it returns its first bytes up to limit, without a
// partial character, followed by Mark.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + Mark
}
