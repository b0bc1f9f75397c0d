package receipt

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// Format is the version of the files. The package reads no other version.
const Format = 1

// Limits for encoding and decoding; see docs/inside/formats/receipt.md.
const (
	MaxBytes  = 1 << 20
	maxText   = 4096
	maxList   = 256
	maxLayers = 4096
)

// ErrFormat: the bytes are not a receipt, have another format version, or break a rule.
var ErrFormat = errors.New("not a receipt of a known format")

var (
	subjectPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	idPattern      = regexp.MustCompile(`^r[0-9a-f]{18}$`)
)

// Encode encodes a receipt. It truncates long texts and lists: they come partly from guests, and a record is
// better than an error.
func Encode(r Receipt) ([]byte, error) {
	r.Format = Format
	r.cut()
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("encode receipt: %w", err)
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode receipt: %w", err)
	}
	if b = append(b, '\n'); len(b) > MaxBytes {
		return nil, fmt.Errorf("encode receipt: %d bytes, want at most %d", len(b), MaxBytes)
	}
	return b, nil
}

// Decode decodes and checks a receipt.
func Decode(b []byte) (Receipt, error) {
	var r Receipt
	if len(b) > MaxBytes {
		return r, fmt.Errorf("decode receipt: %w: %d bytes, want at most %d", ErrFormat, len(b), MaxBytes)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return Receipt{}, fmt.Errorf("decode receipt: %w: %w", ErrFormat, err)
	}
	if err := r.check(); err != nil {
		return Receipt{}, fmt.Errorf("decode receipt: %w", err)
	}
	return r, nil
}

func (r *Receipt) check() error {
	switch {
	case r.Format != Format:
		return fmt.Errorf("%w: format %d, want %d", ErrFormat, r.Format, Format)
	case !idPattern.MatchString(r.ID):
		return fmt.Errorf("%w: bad id", ErrFormat)
	}
	switch r.Op {
	case Fork, Rollback, Pause, Resume, Branch, Snapshot:
	default:
		return fmt.Errorf("%w: unknown operation", ErrFormat)
	}
	if kind, name := r.Subject(); !subjectPattern.MatchString(name) {
		return fmt.Errorf("%w: bad name of its %s", ErrFormat, kind)
	}
	for _, s := range r.texts() {
		if len(*s) > maxText {
			return fmt.Errorf("%w: a text of %d bytes, want at most %d", ErrFormat, len(*s), maxText)
		}
	}
	return r.checkLists()
}

func (r *Receipt) checkLists() error {
	lists := []int{len(r.Steps)}
	if r.Capture != nil {
		lists = append(lists, len(r.Capture.PauseSteps))
	}
	if g := r.Guest; g != nil {
		lists = append(lists, len(g.Steps), len(g.Hooks), len(g.Interpreters))
		for _, i := range g.Interpreters {
			lists = append(lists, len(i.Reseeded))
		}
	}
	for _, n := range lists {
		if n > maxList {
			return fmt.Errorf("%w: a list of %d, want at most %d", ErrFormat, n, maxList)
		}
	}
	for _, s := range []*Source{r.Parent, r.Made} {
		if s != nil && len(s.Layers) > maxLayers {
			return fmt.Errorf("%w: %d layers, want at most %d", ErrFormat, len(s.Layers), maxLayers)
		}
	}
	return nil
}

// cut truncates a receipt to the limits. It copies lists before it changes them.
func (r *Receipt) cut() {
	for _, s := range []**Source{&r.Parent, &r.Made} {
		if *s != nil && len((*s).Layers) > maxLayers {
			c := **s
			c.Layers = c.Layers[:maxLayers]
			*s = &c
		}
	}
	r.Steps = first(r.Steps, maxList)
	if r.Capture != nil {
		c := *r.Capture
		c.PauseSteps = first(c.PauseSteps, maxList)
		r.Capture = &c
	}
	if r.Guest != nil {
		g := *r.Guest
		g.Steps, g.Hooks, g.Interpreters = first(g.Steps, maxList), first(g.Hooks, maxList), first(g.Interpreters, maxList)
		for i := range g.Interpreters {
			g.Interpreters[i].Reseeded = first(g.Interpreters[i].Reseeded, maxList)
		}
		r.Guest = &g
	}
	for _, s := range r.texts() {
		*s = guesttext.ClipLines(*s, maxText-len(ellipsis.Mark))
	}
}

// first returns a copy of at most n elements of a list.
func first[T any](s []T, n int) []T { return append([]T(nil), s[:min(n, len(s))]...) }

// texts returns the texts that do not come from the daemon alone.
func (r *Receipt) texts() []*string {
	out := []*string{&r.Error}
	if g := r.Guest; g != nil {
		out = append(out, &g.BootID, &g.RandomDigest)
		for i := range g.Steps {
			out = append(out, &g.Steps[i].Name, &g.Steps[i].Error)
		}
		for i := range g.Hooks {
			out = append(out, &g.Hooks[i].Name, &g.Hooks[i].Error)
		}
		for i := range g.Interpreters {
			in := &g.Interpreters[i]
			out = append(out, &in.Language, &in.Error)
			for k := range in.Reseeded {
				out = append(out, &in.Reseeded[k])
			}
		}
	}
	return out
}
