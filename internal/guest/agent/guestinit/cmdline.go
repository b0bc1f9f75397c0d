package guestinit

import (
	"strings"

	"github.com/forkd/forkd/internal/guest/agent/inventory"
)

// Options are the agent's words on the kernel command line.
type Options struct {
	// Root is the block device of the root image; empty means to stay in the
	// initramfs.
	Root string
	// Upper is the block device, ext4, that takes what is written to the root;
	// empty means memory.
	Upper string
	// Init is the image's own init, to be PID 1 instead of the agent.
	Init string
	// Listen replaces the agent's address; for tests without a vsock device.
	Listen string

	// Layers are those of the root's overlay, once it is there.
	Layers inventory.Layers
}

// ParseCmdline picks the agent's words out of a kernel command line; the last
// of a kind wins, others are the kernel's.
func ParseCmdline(line string) Options {
	var o Options
	for _, word := range words(line) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "forkd.root":
			o.Root = value
		case "forkd.upper":
			o.Upper = value
		case "forkd.init":
			o.Init = value
		case "forkd.listen":
			o.Listen = value
		}
	}
	return o
}

// words splits as the kernel does: at white space outside double quotes, which
// are dropped. What follows a lone -- is for init and is no option.
func words(line string) []string {
	var out []string
	var cur strings.Builder
	quoted, begun := false, false
	flush := func() {
		if begun {
			out = append(out, cur.String())
		}
		cur.Reset()
		begun = false
	}
	for _, r := range line {
		switch {
		case r == '"':
			quoted, begun = !quoted, true
		case !quoted && (r == ' ' || r == '\t' || r == '\n' || r == '\r'):
			flush()
		default:
			cur.WriteRune(r)
			begun = true
		}
	}
	flush()
	for i, w := range out {
		if w == "--" {
			return out[:i]
		}
	}
	return out
}
