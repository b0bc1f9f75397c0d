package main

import (
	"fmt"
	"time"

	"github.com/forkd/forkd/cmd/internal/exit"
)

// sinceTime reads the value of --since: a time, or a duration before now. The zero time means that
// there is no value.
func sinceTime(value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(value); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, exit.UsageError{
			Err: fmt.Errorf("--since %q: want a time such as 2026-01-02T15:04:05Z, or how long ago, such as 90m", value)}
	}
	return t, nil
}
