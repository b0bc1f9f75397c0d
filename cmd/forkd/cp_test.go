package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/forkd/forkd/client"
)

// TestAnInterruptedCopySaysHowFarItCame checks the text. Package client tests the numbers.
func TestAnInterruptedCopySaysHowFarItCame(t *testing.T) {
	full := errors.New("no space left")
	for _, row := range []struct {
		name string
		err  error
		want string
	}{
		{"some", &client.StoppedError{Copied: 12, Cause: context.Canceled},
			"interrupted; 12 files, links and directories were copied whole, the rest is as it was"},
		{"none", &client.StoppedError{Copied: 0, Cause: context.Canceled}, "interrupted; no file was copied"},
		{"a stream to one file", fmt.Errorf("copy: %w", context.Canceled), "interrupted; no file was copied"},
		{"an agent that is silent", &client.StoppedError{Unknown: true, Cause: context.Canceled},
			"interrupted; the agent in the sandbox did not report the number of copied files: existing files are complete"},
		{"a full disk", full, "no space left"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := sayInterrupted(nil, copyInterrupted(row.err)); got.Error() != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
	if err := copyInterrupted(&client.StoppedError{Copied: 1, Cause: context.Canceled}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v has no exit code of an interruption", err)
	}
}
