package guestinit

import (
	"strings"

	"github.com/forkd/forkd/internal/guest/agent/inventory"
)

// Options are the agent's options on the kernel command line.
type Options struct {
	// Root is the block device of the root image. If empty, the guest stays in the initramfs.
	Root string
	// Upper is the block device, with ext4, for writes to the root. If empty, they go to memory.
	Upper string
	// Init is the image's own init. If set, it becomes PID 1 instead of the agent.
	Init string
	// Listen replaces the agent's address, for tests without a vsock device.
	Listen string

	// Layers are the layers of the root's overlay, set once it is mounted.
	Layers inventory.Layers
}

// ParseCmdline extracts the agent's options from a kernel command line. The last of each kind wins.
// Other words are for the kernel.
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

// words splits the line as the kernel does: at white space outside double quotes, which are
// dropped. Words after a lone -- are for init.
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
