package updatewire

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

func TestMessagesArriveAsSent(t *testing.T) {
	var b bytes.Buffer
	h := Header{Size: 7, Digest: sha256.Sum256([]byte("program"))}
	if err := WriteHeader(&b, h); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadHeader(&b); err != nil || got != h || b.Len() != 0 {
		t.Errorf("got %v, %v with %d bytes left, want %v", got, err, b.Len(), h)
	}
	for _, a := range []Answer{{Code: Going}, {Refused, "a command has a caller"}} {
		if err := WriteAnswer(&b, a); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadAnswer(&b); err != nil || got != a || b.Len() != 0 {
			t.Errorf("got %v, %v with %d bytes left, want %v", got, err, b.Len(), a)
		}
	}
	if _, err := ReadAnswer(&b); !errors.Is(err, io.EOF) {
		t.Errorf("at the end of the connection got %v, want EOF", err)
	}
}

func TestALongReasonIsCut(t *testing.T) {
	var b bytes.Buffer
	if err := WriteAnswer(&b, Answer{Refused, strings.Repeat("x", 1<<17)}); err != nil {
		t.Fatal(err)
	}
	if a, err := ReadAnswer(&b); err != nil || len(a.Reason) != MaxReason {
		t.Errorf("got %d bytes, %v, want %d", len(a.Reason), err, MaxReason)
	}
}

func TestBadMessagesAreRefused(t *testing.T) {
	head := func(change func([]byte)) []byte {
		var b bytes.Buffer
		_ = WriteHeader(&b, Header{Size: 1})
		change(b.Bytes())
		return b.Bytes()
	}
	var broken *agentproto.Violation
	for name, b := range map[string][]byte{
		"another version": head(func(b []byte) { b[0] = 2 }),
		"a reserved byte": head(func(b []byte) { b[3] = 1 }),
		"no program":      head(func(b []byte) { b[11] = 0 }),
		"a huge program":  head(func(b []byte) { b[4] = 0xff }),
	} {
		if h, err := ReadHeader(bytes.NewReader(b)); !errors.As(err, &broken) {
			t.Errorf("%s: got %v, %v, want a violation", name, h, err)
		}
	}
	for _, b := range [][]byte{{2, 1, 0, 0}, {1, 3, 0, 0}, {1, 2, 0xff, 0xff}} {
		if a, err := ReadAnswer(bytes.NewReader(b)); !errors.As(err, &broken) {
			t.Errorf("% x: got %v, %v, want a violation", b, a, err)
		}
	}
}

func FuzzMessages(f *testing.F) {
	var b bytes.Buffer
	_ = WriteHeader(&b, Header{Size: 1})
	f.Add(b.Bytes())
	f.Add([]byte{1, 2, 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ReadHeader(bytes.NewReader(b)); err == nil && (h.Size <= 0 || h.Size > MaxProgram) {
			t.Errorf("accepted %d bytes", h.Size)
		}
		if a, err := ReadAnswer(bytes.NewReader(b)); err == nil && len(a.Reason) > MaxReason {
			t.Errorf("accepted a reason of %d bytes", len(a.Reason))
		}
	})
}
