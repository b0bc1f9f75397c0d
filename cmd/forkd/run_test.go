package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/leaf/initprogram"
)

func TestAnOldAgentWithoutTheCommandForInits(t *testing.T) {
	missing := fmt.Errorf("exec: %w", client.ErrNoProgram)
	initLine := []string{initprogram.Runner, "/sbin/init"}
	for _, tc := range []struct {
		name    string
		program []string
		err     error
		hint    bool
	}{
		{"an init", initLine, missing, true},
		{"another program", []string{"/bin/x"}, missing, false},
		{"another error", initLine, errors.New("gone"), false},
		{"no error", initLine, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := explainInit(tc.program, tc.err)
			if !errors.Is(got, tc.err) || strings.Contains(hints.Of(got), "again from its image") != tc.hint {
				t.Errorf("got %v with the hint %q", got, hints.Of(got))
			}
		})
	}
}
