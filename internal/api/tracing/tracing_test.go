package tracing

import (
	"strings"
	"testing"
)

func TestParseEndpoint(t *testing.T) {
	for in, want := range map[string]string{
		"http://127.0.0.1:4318":                "http://127.0.0.1:4318/v1/traces",
		"https://collector.example/":           "https://collector.example/v1/traces",
		"https://collector.example/own/path":   "https://collector.example/own/path",
		"127.0.0.1:4318":                       "",
		"grpc://127.0.0.1:4317":                "",
		"http://":                              "",
		"":                                     "",
		"http://user:hidden@collector.example": "",
		"http://[::1":                          "",
	} {
		got, err := ParseEndpoint(in)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("the error has the password: %v", err)
		}
	}
}
