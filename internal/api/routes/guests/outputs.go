package guests

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

// output is a program's output in an answer. It has a field for the text. If the output is not
// valid UTF-8, a second field (raw) holds the bytes. Without raw, the output is text only. null
// writes an empty text as null.
type output struct {
	name, raw, value string
	null             bool
}

// answerOutputs writes a JSON object with outputs, then the fields of rest. It encodes the outputs
// piece by piece, so that a slow client does not hold an encoded copy in memory.
func answerOutputs(rest any, outputs ...output) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = writeOutputs(w, rest, outputs) // a disconnected client is no error
	}}
}

func writeOutputs(w io.Writer, rest any, outputs []output) error {
	lead := "{"
	for _, o := range outputs {
		if o.null && o.value == "" {
			if _, err := io.WriteString(w, lead+`"`+o.name+`":null`); err != nil {
				return err
			}
			lead = ","
			continue
		}
		if err := writeNamed(w, lead, o.name, o.value, reply.WriteString); err != nil {
			return err
		}
		if lead = ","; o.raw != "" && !utf8.ValidString(o.value) {
			if err := writeNamed(w, lead, o.raw, o.value, reply.WriteBase64); err != nil {
				return err
			}
		}
	}
	var fields bytes.Buffer
	if err := reply.Write(&fields, rest); err != nil {
		return err
	}
	b := bytes.TrimPrefix(fields.Bytes(), []byte("{"))
	if len(b) > 0 && b[0] != '}' {
		b = append([]byte(","), b...)
	}
	_, err := w.Write(b)
	return err
}

// writeNamed writes a field of an object.
func writeNamed(w io.Writer, lead, name, value string, write func(io.Writer, string) error) error {
	if _, err := io.WriteString(w, lead+`"`+name+`":`); err != nil {
		return err
	}
	return write(w, value)
}

// fit replaces a request's charge for the body and for stored output with the charge for its
// outputs. It cuts the ends of the outputs that exceed the tenant's share, and returns the number
// of bytes it cut off.
func fit(a *membudget.Account, outputs ...*string) (dropped int64) {
	if a == nil {
		return 0
	}
	var need int64
	for _, out := range outputs {
		need += int64(len(*out))
	}
	held := a.Held()
	if more := need - held; more > 0 {
		held += a.ChargeUpTo(more)
	} else {
		a.Release(-more)
		held = need
	}
	room := held
	for _, out := range outputs {
		n := min(room, int64(len(*out)))
		room -= n
		dropped += int64(len(*out)) - n
		if n < int64(len(*out)) {
			*out = strings.Clone((*out)[:n])
		}
	}
	return dropped
}
