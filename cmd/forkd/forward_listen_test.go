package main

import "testing"

func TestAForwardListensOnTheFamilyOfItsAddress(t *testing.T) {
	for local, want := range map[string]string{
		"0.0.0.0:80": "tcp4", "127.0.0.1:0": "tcp4", "[::1]:80": "tcp6", "localhost:80": "tcp", ":80": "tcp",
	} {
		if got := listenNetwork(local); got != want {
			t.Errorf("%s: %s, want %s", local, got, want)
		}
	}
}
