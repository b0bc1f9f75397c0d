package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// outputPiece is the number of bytes of an output that are encoded at a time.
const outputPiece = 48 << 10 // divisible by 3, so that pieces of base64 need no padding

// output is a program's output in an answer: the field of its text, and that of its bytes, which
// is only present if they are no valid UTF-8. A field without raw is text only; null stands for an
// empty text.
type output struct {
	name, raw, value string
	null             bool
}

// answerOutputs writes a JSON object with outputs, then the fields of rest. It encodes the outputs
// piece by piece: a client that reads slowly costs no encoded copy.
func answerOutputs(rest any, outputs ...output) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = writeOutputs(w, rest, outputs) // a client that left is no error
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
		if err := writeText(w, lead+`"`+o.name+`":"`, o.value); err != nil {
			return err
		}
		if lead = ","; o.raw != "" && !utf8.ValidString(o.value) {
			if err := writeBase64(w, `,"`+o.raw+`":"`, o.value); err != nil {
				return err
			}
		}
	}
	var fields bytes.Buffer
	enc := json.NewEncoder(&fields)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(rest); err != nil {
		return err
	}
	b := bytes.TrimPrefix(fields.Bytes(), []byte("{"))
	if len(b) > 0 && b[0] != '}' {
		b = append([]byte(","), b...)
	}
	_, err := w.Write(b)
	return err
}

// writeText writes a JSON string after its opening quote. A piece ends between two characters.
func writeText(w io.Writer, lead, s string) error {
	if _, err := io.WriteString(w, lead); err != nil {
		return err
	}
	var piece bytes.Buffer
	enc := json.NewEncoder(&piece)
	enc.SetEscapeHTML(false)
	for len(s) > 0 {
		n := min(len(s), outputPiece)
		for back := 0; n < len(s) && back < utf8.UTFMax-1 && !utf8.RuneStart(s[n]); back++ {
			n--
		}
		piece.Reset()
		if err := enc.Encode(s[:n]); err != nil {
			return err
		}
		if _, err := w.Write(bytes.TrimSuffix(piece.Bytes(), []byte("\"\n"))[1:]); err != nil {
			return err
		}
		s = s[n:]
	}
	_, err := io.WriteString(w, `"`)
	return err
}

func writeBase64(w io.Writer, lead, s string) error {
	if _, err := io.WriteString(w, lead); err != nil {
		return err
	}
	enc := base64.NewEncoder(base64.StdEncoding, w)
	for len(s) > 0 {
		n := min(len(s), outputPiece)
		if _, err := io.WriteString(enc, s[:n]); err != nil {
			return err
		}
		s = s[n:]
	}
	if err := enc.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(w, `"`)
	return err
}
