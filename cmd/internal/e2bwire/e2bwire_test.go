package e2bwire

import (
	"strings"
	"testing"
)

// TestOutput reads complete answers to Start, answers with an error, and cut-off answers.
func TestOutput(t *testing.T) {
	const said = `{"event":{"data":{"stdout":"NDIK"}}}`
	end := func(message string) string {
		b := envelope([]byte(message))
		b[0] = endOfStream
		return string(b)
	}
	data := string(envelope([]byte(said)))
	for name, c := range map[string]struct{ answer, out, fails string }{
		"whole":    {data + string(envelope([]byte(`{"event":{"end":{"exited":true}}}`))) + end("{}"), "42\n", ""},
		"exit 3":   {string(envelope([]byte(`{"event":{"end":{"exitCode":3}}}`))), "", "ended with 3"},
		"error":    {end(`{"error":{"code":"not_found","message":"gone"}}`), "", "not_found: gone"},
		"too soon": {data + end("{}"), "", "ended before the command did"},
		"cut off":  {data + "\x00\x00", "", "unexpected EOF"},
		"huge":     {"\x00\xff\xff\xff\xff", "", "has 4294967295 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := output(strings.NewReader(c.answer))
			if c.fails == "" && (err != nil || out != c.out) {
				t.Errorf("says %q, %v", out, err)
			}
			if c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("the error is %v, want %q", err, c.fails)
			}
		})
	}
}
