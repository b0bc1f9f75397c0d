// Package retention reads the labels that say how long a snapshot is kept, and decides which snapshots are due. It
// removes no snapshot. Beware: a label with an unreadable value keeps its snapshot.
package retention

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Keys of the labels with rules.
const (
	Pin      = "forkd.pin"       // true: the snapshot is never due
	Expires  = "forkd.expires"   // a time in RFC 3339, or a duration from the snapshot's creation
	Lineage  = "forkd.lineage"   // name of the series for KeepLast
	KeepLast = "forkd.keep-last" // number of the newest snapshots that stay in the series
)

// IsRule reports whether a label has a rule.
func IsRule(key string) bool {
	return key == Pin || key == Expires || key == Lineage || key == KeepLast
}

// MaxKeepLast is the highest number of KeepLast.
const MaxKeepLast = 100_000

// maxAge limits an expiry by its duration.
const maxAge = 100 * 365 * 24 * time.Hour

// shown limits the text of a value in an error, in bytes.
const shown = 60

// Rules are a snapshot's rules, from its labels.
type Rules struct {
	Pinned   bool      // the snapshot is never due
	Expires  time.Time // when it is due; zero: never
	Lineage  string    // name of its series; may be empty
	KeepLast int       // number of snapshots that stay in its series; 0: all
}

// Of returns the rules in the labels of a snapshot made at that time.
func Of(labels map[string]string, made time.Time) (r Rules, err error) {
	r.Lineage = labels[Lineage]
	if text, ok := labels[Pin]; ok {
		switch text {
		case "", "true":
			r.Pinned = true
		case "false":
		default:
			return r, bad(Pin, text, "true or false")
		}
	}
	if text, ok := labels[KeepLast]; ok {
		if text == All {
			r.KeepLast = 0
		} else if r.KeepLast, err = strconv.Atoi(text); err != nil || r.KeepLast < 1 || r.KeepLast > MaxKeepLast {
			return r, bad(KeepLast, text, fmt.Sprintf("1 to %d, or %s", MaxKeepLast, All))
		}
	}
	if text, ok := labels[Expires]; ok && text != Never {
		if r.Expires, err = expiry(text, made); err != nil {
			return r, err
		}
	}
	return r, nil
}

// OfCopy returns the labels for a copy of a snapshot made at that time: a copy expires when its original does.
// Unreadable rules stay as they are.
func OfCopy(labels map[string]string, made time.Time) map[string]string {
	r, err := Of(labels, made)
	if err != nil || r.Expires.IsZero() {
		return labels
	}
	out := maps.Clone(labels)
	out[Expires] = r.Expires.UTC().Format(time.RFC3339)
	return out
}

func expiry(text string, from time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		if d <= 0 || d > maxAge {
			return time.Time{}, bad(Expires, text, "a duration of more than 0 and at most 100 years")
		}
		return from.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, bad(Expires, text, "a duration such as 24h, a time such as 2026-01-02T15:04:05Z, or never")
	}
	return at, nil
}

func bad(key, text, want string) error {
	return fmt.Errorf("label %s=%q: want %s", key, ellipsis.Clip(text, shown), want)
}

// Check returns an error if a label with a rule has an unreadable value.
func Check(labels map[string]string) error {
	_, err := Of(labels, time.Unix(0, 0))
	return err
}

// Resolve returns the labels with an expiry by its duration as a time from now.
func Resolve(labels map[string]string, now time.Time) map[string]string {
	d, err := time.ParseDuration(labels[Expires])
	if err != nil || d <= 0 || d > maxAge {
		return labels
	}
	out := maps.Clone(labels)
	out[Expires] = now.Add(d).UTC().Format(time.RFC3339)
	return out
}

// Without returns the labels without rules.
func Without(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	for _, key := range []string{Pin, Expires, Lineage, KeepLast} {
		delete(out, key)
	}
	return out
}
