package intake_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/intake"
)

func TestTheServerReadsTheRestAfterTheHandlerHasClosed(t *testing.T) {
	b := intake.New(io.NopCloser(strings.NewReader("abcdef")))
	if n, err := b.Read(make([]byte, 2)); n != 2 || err != nil {
		t.Fatalf("Read returned %d, %v", n, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 2)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("Read after Close returned %v, want %v", err, http.ErrBodyReadAfterClose)
	}
	if b.Ended() {
		t.Error("the body has ended before all of it was read")
	}
	if rest, err := io.ReadAll(b.Rest()); string(rest) != "cdef" || err != nil {
		t.Errorf("the rest is %q, %v, want cdef", rest, err)
	}
	if !b.Ended() {
		t.Error("the body has not ended after its last byte")
	}
}

func TestAReleasedBodyIsTheServersOwn(t *testing.T) {
	own := io.NopCloser(strings.NewReader("abc"))
	b := intake.New(own)
	if got := intake.Release(b); got != own {
		t.Errorf("Release returned %v, want the server's body", got)
	}
	if !b.Ended() {
		t.Error("the server would read the rest of a body that it was given back")
	}
	if got := intake.Release(own); got != own {
		t.Error("Release changed a body that is no intake")
	}
}
