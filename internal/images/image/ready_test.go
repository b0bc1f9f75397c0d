package image

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestReadyOfARecipe(t *testing.T) {
	const head = "name: a\nsuite: bookworm\n"
	for text, want := range map[string]string{
		"ready: {port: 80}": "", "ready: {command: pg_isready, timeout_secs: 600}": "", "start: s\nready: {log: {text: up}}": "",
		"ready: {log: {file: /var/log/x, text: up}}": "", "start: s": "", "first_use: curl localhost": "",
		"ready: {}":                                       "want one of port",
		"ready: {port: 80, command: x}":                   "want one of port",
		"ready: {port: 65536}":                            "port is 65536",
		"ready: {port: -1}":                               "port is -1",
		"ready: {port: 80, timeout_secs: 601}":            "timeout_secs is 601",
		"ready: {log: {text: up}}":                        "there is no start",
		"ready: {log: {file: x, text: up}}":               "file is",
		"ready: {log: {file: /x}}":                        "text is",
		"ready: {log: {file: /x, text: \"a\\nb\"}}":       "text is",
		"ready: {prot: 80}":                               "unknown key",
		"start: " + strings.Repeat("x", maxCommand+1):     "start has",
		"first_use: " + strings.Repeat("x", maxCommand+1): "first_use has",
	} {
		_, err := ParseRecipe("r.yaml", []byte(head+text+"\n"))
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrRecipe) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60s: got %v, want %q", text, err, want)
		}
	}
	if got := (&Ready{}).Timeout(); got != time.Minute {
		t.Errorf("the default is %s", got)
	}
}

func TestReadyOfAnImageThatCameFromElsewhere(t *testing.T) {
	r := &Ready{Port: 1, Command: "x"}
	if err := r.check(""); err == nil {
		t.Error("it is taken")
	}
}
