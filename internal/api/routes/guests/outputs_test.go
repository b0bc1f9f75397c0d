package guests

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzOutputs compares the piecewise encoding of outputs with encoding/json.
func FuzzOutputs(f *testing.F) {
	f.Add([]byte("plain \"text\"\n"), 1)
	f.Add([]byte("\xff\xfe<\u2028é"), 30_000)
	f.Add([]byte("\xe2\x82"), 50_000)
	f.Add([]byte(""), 1)
	f.Fuzz(func(t *testing.T, b []byte, times int) {
		s := strings.Repeat(string(b), min(max(times, 0), 200_000/(len(b)+1)))
		var out bytes.Buffer
		if err := writeOutputs(&out, execRest{ExitCode: 3}, []output{{name: "stdout", raw: "raw", value: s}}); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Stdout   string `json:"stdout"`
			Raw      []byte `json:"raw"`
			ExitCode int    `json:"exit_code"`
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.ExitCode != 3 {
			t.Fatalf("exit code %d, %v", got.ExitCode, err)
		}
		if utf8.ValidString(s) && got.Stdout != s || !utf8.ValidString(s) && string(got.Raw) != s {
			t.Errorf("%d bytes came as %d of text and %d raw", len(s), len(got.Stdout), len(got.Raw))
		}
	})
}
