package dialwire

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestMessagesOnTheWire(t *testing.T) {
	var b bytes.Buffer
	if err := WriteRequest(&b, Request{Port: 8080, Family: IPv6}); err != nil {
		t.Fatal(err)
	}
	if want := "\x01\x06\x1f\x90\x00\x00\x00\x00"; b.String() != want {
		t.Errorf("a request is %q, want %q", b.String(), want)
	}
	b.WriteString("GET /")
	if r, err := ReadRequest(&b); err != nil || r != (Request{8080, IPv6}) || b.String() != "GET /" {
		t.Errorf("read %+v, %v, with %q left", r, err, b.String())
	}
	b.Reset()
	if err := WriteAnswer(&b, Refused); err != nil || b.String() != "\x01\x01\x00\x00" {
		t.Errorf("an answer is %q, %v", b.String(), err)
	}
	b.WriteString("SSH-2.0")
	if c, err := ReadAnswer(&b); err != nil || c != Refused || b.String() != "SSH-2.0" {
		t.Errorf("read %s, %v, with %q left", c, err, b.String())
	}
}

func TestWhatIsNoMessage(t *testing.T) {
	for name, c := range map[string]struct {
		sent string
		want error
	}{
		"nothing":         {"", io.EOF},
		"half of one":     {"\x01\x00\x00", io.ErrUnexpectedEOF},
		"another version": {"\x02\x00\x00\x50\x00\x00\x00\x00", ErrVersion},
		"port 0":          {"\x01\x00\x00\x00\x00\x00\x00\x00", errMalformed},
		"a strange family": {
			"\x01\x05\x00\x50\x00\x00\x00\x00", errMalformed},
		"a tail": {"\x01\x00\x00\x50\x00\x00\x00\x01", errMalformed},
	} {
		if _, err := ReadRequest(bytes.NewReader([]byte(c.sent))); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := ReadAnswer(bytes.NewReader([]byte("HTTP/1.1"))); !errors.Is(err, ErrVersion) {
		t.Errorf("text as an answer: %v", err)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte("\x01\x06\x1f\x90\x00\x00\x00\x00"))
	f.Add([]byte("\x01\x04\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.NewReader(b)
		if r, err := ReadRequest(in); err == nil {
			var again bytes.Buffer
			if WriteRequest(&again, r) != nil || !bytes.Equal(again.Bytes(), b[:RequestBytes]) {
				t.Errorf("%q became %q", b[:RequestBytes], again.Bytes())
			}
		}
		if read := len(b) - in.Len(); read > RequestBytes {
			t.Errorf("a request took %d bytes", read)
		}
		in.Reset(b)
		if c, err := ReadAnswer(in); err == nil {
			var again bytes.Buffer
			if WriteAnswer(&again, c) != nil || !bytes.Equal(again.Bytes(), b[:AnswerBytes]) {
				t.Errorf("%q became %q", b[:AnswerBytes], again.Bytes())
			}
		}
		if read := len(b) - in.Len(); read > AnswerBytes {
			t.Errorf("an answer took %d bytes", read)
		}
	})
}
