package mcpconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// object is a JSON object with its order and the text of its values.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

// parse reads an object. It returns an error for other JSON, for comments, and for a name that is
// there twice: clients disagree about which counts.
func parse(b []byte) (object, error) {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")) // some editors on Windows
	dec := json.NewDecoder(bytes.NewReader(b))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
		return nil, errors.New("it is not a JSON object; comments are not JSON")
	}
	var out object
	for dec.More() {
		name, err := dec.Token()
		var m member
		if err == nil {
			m.name = name.(string) // the decoder returns no other names
			err = dec.Decode(&m.value)
		}
		if err != nil {
			return nil, fmt.Errorf("it is not valid JSON at byte %d: %w", dec.InputOffset(), err)
		}
		if out.get(m.name) != nil {
			return nil, fmt.Errorf("it has %q twice", m.name)
		}
		out = append(out, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("it is not valid JSON at byte %d: %w", dec.InputOffset(), err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("it has more than one object, at byte %d", dec.InputOffset())
	}
	return out, nil
}

func (o object) get(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// set returns the object with a value replaced, or added at the end.
func (o object) set(name string, value json.RawMessage) object {
	out := append(object{}, o...)
	for i, m := range out {
		if m.name == name {
			out[i].value = value
			return out
		}
	}
	return append(out, member{name, value})
}

func (o object) bytes() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := marshal(m.name) // a string is always JSON
		b.Write(name)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// compact returns the object's JSON without space.
func compact(o object) []byte {
	var b bytes.Buffer
	_ = json.Compact(&b, o.bytes()) // it was parsed
	return b.Bytes()
}
