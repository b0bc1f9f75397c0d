package main

import (
	"slices"
	"testing"

	"github.com/forkd/forkd/api"
)

func TestTheTreeOfASandbox(t *testing.T) {
	list := []api.SandboxInfo{
		{ID: "root"}, {ID: "a", ForkedBy: "root"}, {ID: "aa", ForkedBy: "a"}, {ID: "b", ForkedBy: "root"},
		{ID: "other"}, {ID: "o", ForkedBy: "other"}, {ID: "orphan", ForkedBy: "gone"}, {ID: "sibling", ForkedBy: "gone"},
		{ID: "x", ForkedBy: "y"}, {ID: "y", ForkedBy: "x"},
	}
	for id, want := range map[string][]string{
		"root": {"root", "a", "aa", "b"}, "aa": {"aa", "root", "a", "b"}, "other": {"other", "o"},
		"orphan": {"orphan", "sibling"}, "unknown": {"unknown"},
	} {
		if got := forkTreeOf(list, id); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
	if got := forkTreeOf(list, "x"); got[0] != "x" { // a forged list ends
		t.Errorf("a circle: %v", got)
	}
}

func TestAForwardListensOnTheFamilyOfItsAddress(t *testing.T) {
	for local, want := range map[string]string{
		"0.0.0.0:80": "tcp4", "127.0.0.1:0": "tcp4", "[::1]:80": "tcp6", "localhost:80": "tcp", ":80": "tcp",
	} {
		if got := listenNetwork(local); got != want {
			t.Errorf("%s: %s, want %s", local, got, want)
		}
	}
}
