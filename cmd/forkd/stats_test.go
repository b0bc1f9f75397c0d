package main

import (
	"testing"

	"github.com/forkd/forkd/api"
)

func TestStatsEndsWithTheSandboxesNamed(t *testing.T) {
	list := func(status ...api.SandboxStatus) (out []api.SandboxInfo) {
		for _, s := range status {
			out = append(out, api.SandboxInfo{Status: s})
		}
		return out
	}
	for _, c := range []struct {
		name string
		only []string
		list []api.SandboxInfo
		want bool
	}{
		{"all sandboxes, none there", nil, nil, false},
		{"named, gone", []string{"a"}, nil, true},
		{"named, failed", []string{"a"}, list(api.SandboxFailed), true},
		{"named, one of two failed", []string{"a", "b"}, list(api.SandboxFailed, api.SandboxRunning), false},
		{"named, paused", []string{"a"}, list(api.SandboxPaused), false},
	} {
		if got := (top{only: c.only}).ended(c.list); got != c.want {
			t.Errorf("%s: ended %v, want %v", c.name, got, c.want)
		}
	}
}
