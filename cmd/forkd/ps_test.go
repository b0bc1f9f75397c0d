package main

import (
	"slices"
	"testing"

	"github.com/forkd/forkd/api"
)

// Columns that few users need are there only with a value, and each value stands under its head.
func TestColumnsOfPs(t *testing.T) {
	plain := api.SandboxInfo{ID: "sb-1", Status: api.SandboxRunning, Reason: "why"}
	onNode, serving := plain, plain
	onNode.Node = "node-b"
	serving.Services = []api.ServiceState{{Name: "web", State: "ready"}}
	for name, c := range map[string]struct {
		list []api.SandboxInfo
		want map[string][]string
	}{
		"plain": {[]api.SandboxInfo{plain}, map[string][]string{"REASON": {"why"}}},
		"node":  {[]api.SandboxInfo{plain, onNode}, map[string][]string{"NODE": {"", "node-b"}, "REASON": {"why", "why"}}},
		"both": {[]api.SandboxInfo{serving, onNode}, map[string][]string{"NODE": {"", "node-b"}, "SERVICES": {"1 ready", ""},
			"REASON": {"why", "why"}}},
	} {
		head, rows := sandboxTable(c.list)
		for _, column := range []string{"NODE", "SERVICES", "REASON"} {
			at := slices.Index(head, column)
			if (at >= 0) != (c.want[column] != nil) {
				t.Errorf("%s: %v", name, head)
				continue
			}
			for i, want := range c.want[column] {
				if len(rows[i]) != len(head) || rows[i][at] != want {
					t.Errorf("%s: %s is %q in %v", name, column, rows[i], head)
				}
			}
		}
	}
}
