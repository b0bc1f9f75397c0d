package mcp

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/forkd/forkd/cmd/forkd/internal/mcp/place"
)

// Limits of the outputs a session keeps. The oldest are dropped first.
const (
	maxOutputs     = 64
	maxOutputBytes = 32 << 20
)

// outputs has the whole texts of outputs that were cut.
type outputs struct {
	mu    sync.Mutex // guards the fields below
	last  int        // number of the newest
	kept  []output   // oldest first
	bytes int
}

// output is the output of one call, by stream.
type output struct {
	number  int
	streams map[string][]byte
}

func (o output) size() (n int) {
	for _, b := range o.streams {
		n += len(b)
	}
	return n
}

// keep keeps the streams of one call, and returns their number.
func (o *outputs) keep(streams map[string][]byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	n := output{o.last, streams}
	o.kept = append(o.kept, n)
	o.bytes += n.size()
	for len(o.kept) > 1 && (len(o.kept) > maxOutputs || o.bytes > maxOutputBytes) {
		o.bytes -= o.kept[0].size()
		o.kept = o.kept[1:]
	}
	return n.number
}

func (o *outputs) read(number int, stream string) ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range o.kept {
		if k.number == number {
			b, ok := k.streams[stream]
			return b, ok
		}
	}
	return nil, false
}

// brief returns the streams as texts of at most the session's limit, and notes about the parts left
// out. It keeps the whole streams if it cuts any.
func (n *session) brief(streams map[string][]byte) (texts map[string]string, notes []string) {
	texts = map[string]string{}
	long := false
	for name, b := range streams {
		texts[name] = strings.ToValidUTF8(string(b), "\uFFFD")
		long = long || len(b) > n.opt.OutputBytes || !utf8.Valid(b)
	}
	if !long {
		return texts, nil
	}
	number := n.outputs.keep(streams)
	for _, name := range []string{"result", "stdout", "stderr"} {
		b := streams[name]
		where := place.Place{Kind: place.Output, Number: number, Stream: name}.String()
		switch {
		case len(b) > n.opt.OutputBytes:
			texts[name] = middleCut(b, n.opt.OutputBytes)
			notes = append(notes, fmt.Sprintf("%s has %d bytes and was cut in the middle; the resource %s has all of it "+
				"(add ?offset=N&limit=N for a part)", name, len(b), where))
		case !utf8.Valid(b):
			notes = append(notes, fmt.Sprintf("%s is not UTF-8, and bytes were replaced; the resource %s has the bytes",
				name, where))
		}
	}
	return texts, notes
}

// middleCut returns the begin and the end of a text, at most limit bytes beside the mark.
func middleCut(b []byte, limit int) string {
	head, tail := whole(b[:limit/2]), b[len(b)-limit/2:]
	for i := 0; i < utf8.UTFMax && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	left := len(b) - len(head) - len(tail)
	text := fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", head, left, tail)
	return strings.ToValidUTF8(text, "\uFFFD")
}

// whole returns b without an incomplete character at its end.
func whole(b []byte) []byte {
	for at := len(b) - 1; at >= 0 && at >= len(b)-utf8.UTFMax; at-- {
		if !utf8.RuneStart(b[at]) {
			continue
		}
		if !utf8.FullRune(b[at:]) {
			return b[:at]
		}
		break
	}
	return b
}
