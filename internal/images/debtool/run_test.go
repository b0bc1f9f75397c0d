package debtool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func sh(script string) Command { return Command{Args: []string{"sh", "-c", script}, Package: "dash"} }

func TestFailureShowsTheLastLines(t *testing.T) {
	// Regardless of which stream is read first.
	_, err := Run(context.Background(), sh("echo 'E: no such package' >&2; seq 1 100; exit 3"))
	var e *Error
	if !errors.As(err, &e) || len(e.Tail) != tailLines {
		t.Fatalf("got %v", err)
	}
	if !slices.Contains(e.Tail, "E: no such package") || slices.Contains(e.Tail, "50") {
		t.Errorf("tail is %q", e.Tail)
	}
	if !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error is %q", err)
	}
}

func TestOutputAndLines(t *testing.T) {
	var lines []string
	c := sh("echo one; printf two")
	c.OnLine = func(l string) { lines = append(lines, l) }
	out, err := Run(context.Background(), c)
	if err != nil || string(out) != "one\ntwo" || !slices.Equal(lines, []string{"one", "two"}) {
		t.Errorf("got %q, %q, %v", out, lines, err)
	}
}

func TestAnEndlessLineIsCut(t *testing.T) {
	longest := 0
	c := sh("head -c 1000000 /dev/zero | tr '\\0' x")
	c.OnLine = func(l string) { longest = max(longest, len(l)) }
	if _, err := Run(context.Background(), c); err != nil || longest == 0 || longest > maxLine {
		t.Errorf("longest line is %d, %v", longest, err)
	}
}

func TestMissingToolNamesItsPackage(t *testing.T) {
	_, err := Run(context.Background(), Command{Args: []string{"forkd-no-such-tool"}, Package: "some-package"})
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "apt-get install some-package") {
		t.Errorf("got %v", err)
	}
}

func TestCancelEndsTheWholeTree(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("the user's wish")
	c := sh("sleep 300 & echo started; wait")
	c.OnLine = func(string) { cancel(reason) }
	start := time.Now()
	// The child keeps stdout open, so Run returns early only if the child was killed, too.
	if _, err := Run(ctx, c); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("took %v", took)
	}
}
